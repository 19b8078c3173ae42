//! Starts with missing, damaged or restored files in the agent's folder: the agent never serves with less than what was acknowledged, and
//! always reports why it takes no tasks.

use gpuaas_host::FileSpec;
use gpuaas_model::Code;
use gpuaas_wire::session::{AgentProblemKind, TaskLine};

use super::test_node::{ENROLL, HEAD, IDENTITY, KEY, LEDGER, TestNode, statement, task};
use crate::{
    clock::now,
    enroll,
    error::AgentError,
    ledger::{ExpectedLedger, Ledger},
    runner::Accepted,
    state,
};

const REIMAGE: &str = "/var/lib/gpuaas-agent/reimage";
const UNINSTALL: &str = "/var/lib/gpuaas-agent/rke2-uninstall";
const ARTIFACT: &str = "/var/lib/gpuaas-agent/artifacts/0a1b";
/// Files that may be present at the start of an intact node.
const FILES: [&str; 7] = [IDENTITY, LEDGER, HEAD, ENROLL, REIMAGE, UNINSTALL, ARTIFACT];

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Missing,
    Empty,
    Truncated,
    Flipped,
    /// An earlier version, restored next to the present versions of the others.
    Restored,
    /// A later version than that of all the others.
    Newer,
}

use Damage::{Empty, Flipped, Missing, Newer, Restored, Truncated};

/// The behaviour of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Connects and takes tasks.
    Serves,
    /// Connects, reports why, and takes no tasks.
    RefusesTasks,
    /// Ends with that exit status.
    Ends(u8),
}

use Outcome::{Ends, RefusesTasks, Serves};

/// Each file, its damage, the agent's behaviour, and words in its message.
#[rustfmt::skip]
const MATRIX: &[(&str, Damage, Outcome, &str)] = &[
    (IDENTITY, Missing, Ends(9), "identity.json is missing, although /var/lib/gpuaas-agent/ledger.jsonl exists"),
    (IDENTITY, Empty,   Ends(9), "identity.json is empty"),
    (IDENTITY, Truncated,    Ends(9), "identity.json is damaged"),
    (IDENTITY, Flipped, Ends(9), "identity.json is damaged"),
    // Of the same enrollment: the control plane sends key set and endpoints again with each connection.
    (IDENTITY, Restored,   Serves,  ""),
    // Of a later enrollment of this node, with the same ledger.
    (IDENTITY, Newer,   Serves,  ""),
    (LEDGER,   Missing, RefusesTasks, "ledger.jsonl is missing"),
    (LEDGER,   Empty,   RefusesTasks, "ledger.jsonl is empty"),
    (LEDGER,   Truncated,    RefusesTasks, "ledger.jsonl is damaged"),
    (LEDGER,   Flipped, RefusesTasks, "ledger.jsonl"),
    (LEDGER,   Restored,   RefusesTasks, "it was truncated, or is an older copy"),
    (LEDGER,   Newer,   Serves,  ""),
    (HEAD,     Missing, RefusesTasks, "ledger.head is missing"),
    (HEAD,     Empty,   RefusesTasks, "ledger.head is damaged"),
    // The other one of its two records is intact, and so is the ledger itself.
    (HEAD,     Truncated,    Serves,  ""),
    (HEAD,     Flipped, Serves,  ""),
    // The ledger itself is intact, and longer.
    (HEAD,     Restored,   Serves,  ""),
    (HEAD,     Newer,   RefusesTasks, "it was truncated, or is an older copy"),
    (ENROLL,   Missing, Serves,  ""),
    (ENROLL,   Empty,   Serves,  ""),
    (ENROLL,   Truncated,    Serves,  ""),
    (ENROLL,   Flipped, Serves,  ""),
    // A string that may be valid: the agent contacts the control plane, which does not exist in this test.
    (ENROLL,   Restored,   Ends(7), "the control plane cannot be reached"),
    (ENROLL,   Newer,   Ends(7), "the control plane cannot be reached"),
    // Read only during an enrollment.
    (REIMAGE,  Missing, Serves,  ""),
    (REIMAGE,  Empty,   Serves,  ""),
    (REIMAGE,  Truncated,    Serves,  ""),
    (REIMAGE,  Flipped, Serves,  ""),
    (REIMAGE,  Restored,   Serves,  ""),
    (REIMAGE,  Newer,   Serves,  ""),
    // Read only by an uninstall, which checks the host itself whatever the file contains.
    (UNINSTALL, Missing, Serves, ""),
    (UNINSTALL, Empty,   Serves, ""),
    (UNINSTALL, Truncated,    Serves, ""),
    (UNINSTALL, Flipped, Serves, ""),
    (UNINSTALL, Restored,   Serves, ""),
    (UNINSTALL, Newer,   Serves, ""),
    // Installed only if its digest matches.
    (ARTIFACT, Missing, Serves,  ""),
    (ARTIFACT, Empty,   Serves,  ""),
    (ARTIFACT, Truncated,    Serves,  ""),
    (ARTIFACT, Flipped, Serves,  ""),
    (ARTIFACT, Restored,   Serves,  ""),
    (ARTIFACT, Newer,   Serves,  ""),
];

/// The same for a node that an older agent enrolled: the key in a separate file, the ledger without an id.
#[rustfmt::skip]
const MATRIX_WITHOUT_LEDGER_ID: &[(&str, Damage, Outcome, &str)] = &[
    (KEY,      Missing, Ends(9), "key.pem is missing, and /var/lib/gpuaas-agent/identity.json has no key"),
    (KEY,      Empty,   Ends(9), "key.pem is damaged"),
    (KEY,      Truncated,    Ends(9), "key.pem is damaged"),
    (KEY,      Flipped, Ends(9), "key.pem is damaged"),
    (KEY,      Restored,   Ends(9), "key.pem is damaged: its key does not match the certificate"),
    (IDENTITY, Missing, Ends(9), "identity.json is missing, although /var/lib/gpuaas-agent/ledger.jsonl exists"),
    (IDENTITY, Empty,   Ends(9), "identity.json is empty"),
    (IDENTITY, Truncated,    Ends(9), "identity.json is damaged"),
    (LEDGER,   Missing, RefusesTasks, "ledger.jsonl is missing"),
    (LEDGER,   Empty,   RefusesTasks, "ledger.jsonl is empty"),
];

/// Copies of all files from three moments.
struct Copies {
    earlier: Vec<Option<Vec<u8>>>,
    present: Vec<Option<Vec<u8>>>,
    later: Vec<Option<Vec<u8>>>,
}

impl Copies {
    /// Returns the content of another file while one file is damaged.
    fn alongside(&self, file: &str, damage: Damage, at: usize) -> Option<&[u8]> {
        // A later ledger or head is paired with a counterpart that is behind it.
        let is_behind = damage == Newer && [LEDGER, HEAD].contains(&file) && [LEDGER, HEAD].contains(&FILES[at]);
        if is_behind { self.earlier[at].as_deref() } else { self.present[at].as_deref() }
    }
}

fn copies(test_node: &TestNode, files: &[&str]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(test_node.file(file)).ok()).collect()
}

fn place_file(test_node: &TestNode, file: &str, content: Option<&[u8]>) {
    let place = test_node.file(file);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    match content {
        Some(content) => std::fs::write(place, content).unwrap(),
        None => drop(std::fs::remove_file(place)),
    }
}

/// Returns the damaged contents of a file; for a flip, one for each of many bytes.
fn damaged(damage: Damage, copies: &Copies, at: usize) -> Vec<Option<Vec<u8>>> {
    let present = copies.present[at].as_deref().unwrap();
    let flip = |at: usize| {
        let mut flipped = present.to_vec();
        flipped[at] ^= 1;
        Some(flipped)
    };
    match damage {
        Missing => vec![None],
        Empty => vec![Some(Vec::new())],
        Truncated => vec![Some(present[..present.len() / 2].to_vec())],
        Flipped => (0..present.len()).step_by(7).map(flip).collect(),
        Restored => vec![copies.earlier[at].clone()],
        Newer => vec![copies.later[at].clone()],
    }
}

/// Starts the agent, determines its behaviour, and sends the tasks that it has done before.
async fn started(test_node: &mut TestNode) -> (Outcome, String) {
    let runs = test_node.runs().await;
    let did = match test_node.start().await {
        Err(error) => (Ends(error.exit() as u8), error.user_message()),
        Ok(()) => match test_node.runner.problem().map(|problem| problem.detail.clone()) {
            None => (Serves, String::new()),
            Some(detail) => (RefusesTasks, detail),
        },
    };
    for number in [1, 2] {
        match (did.0, test_node.send(&statement(number)).await) {
            (Ends(_), _) => {}
            (Serves, Ok(Accepted::Known(lines))) => assert!(matches!(lines[..], [TaskLine::Ended(_)]), "{lines:?}"),
            (RefusesTasks, Err(refusal)) => assert_eq!(refusal.code, Code::AgentLedgerDamaged),
            (_, Ok(_)) => panic!("task {number} was accepted again: {did:?}"),
            // After a later enrollment.
            (Serves, Err(refusal)) if refusal.code == Code::EnvelopeRecipientMismatch => {}
            (Serves, Err(refusal)) => panic!("task {number}: {}", refusal.message),
        }
    }
    assert_eq!(test_node.runs().await, runs, "a completed task ran again");
    did
}

async fn run_matrix(
    test_node: &mut TestNode,
    whose: &str,
    files: &[&str],
    copies: &Copies,
    matrix: &[(&str, Damage, Outcome, &str)],
) {
    for &(file, damage, does, says) in matrix {
        let at = files.iter().position(|known| *known == file).unwrap();
        let mut message = String::new();
        for content in damaged(damage, copies, at) {
            for (at, other) in files.iter().enumerate() {
                // A string is removed after use; a string that is still there has its own rows.
                place_file(test_node, other, copies.alongside(file, damage, at).filter(|_| *other != ENROLL));
            }
            place_file(test_node, file, content.as_deref());
            let did = started(test_node).await;
            assert_eq!(
                did.0,
                does,
                "{file} {damage:?}: {} {:?}",
                did.1,
                content.map(|content| String::from_utf8_lossy(&content).into_owned())
            );
            assert!(did.1.contains(says), "{file} {damage:?}: {}", did.1);
            message = did.1;
        }
        let does = match does {
            Serves => "serves".to_owned(),
            RefusesTasks => "connects, accepts no tasks".to_owned(),
            Ends(status) => format!("ends with {status}"),
        };
        let (file, last_message) = (file.rsplit('/').next().unwrap(), message.lines().next().unwrap_or_default());
        println!(
            "start matrix of {whose}: {file:<16}{damage:?}: {does} {}",
            last_message.replace("/var/lib/gpuaas-agent/", "")
        );
    }
}

/// Returns an enrolled node that has done two tasks, with copies of its files from after the first.
async fn test_node() -> (TestNode, Copies) {
    let test_node = TestNode::new().await;
    let (earlier, present) = (test_node.enrollment_string("earlier"), test_node.enrollment_string("present"));
    test_node.enroll_with(5, &present).await;
    place_file(&test_node, "/etc/machine-id", Some(b"0198c0de7a3b7c119b540242ac120002\n"));
    let others = |text: &str| [(REIMAGE, text.to_owned()), (UNINSTALL, text.to_owned()), (ARTIFACT, text.to_owned())];
    for (file, content) in others("3").into_iter().chain([(ENROLL, earlier)]) {
        place_file(&test_node, file, Some(content.as_bytes()));
    }
    test_node.end(&statement(1)).await;
    let earlier = copies(&test_node, &FILES);
    test_node.enroll_with(6, &present).await;
    for (file, content) in others("12").into_iter().chain([(ENROLL, present)]) {
        place_file(&test_node, file, Some(content.as_bytes()));
    }
    test_node.end(&statement(2)).await;
    let present = copies(&test_node, &FILES);
    let mut later = present.clone();
    later[0] = Some(test_node.identity_of(4).await.into_bytes());
    later[3] = Some(test_node.enrollment_string("later").into_bytes());
    later[4..].fill(Some(b"123".to_vec()));
    (test_node, Copies { earlier, present, later })
}

#[tokio::test]
async fn damaged_or_restored_files_lose_no_acknowledged_task() {
    let (mut test_node, copies) = test_node().await;
    run_matrix(&mut test_node, "an agent", &FILES, &copies, MATRIX).await;
}

#[tokio::test]
async fn damaged_or_restored_files_are_detected_without_a_ledger_id() {
    const FILES: [&str; 4] = [IDENTITY, KEY, LEDGER, HEAD];
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    test_node.end(&statement(2)).await;
    test_node.enroll_without_ledger_id(true).await;
    let mut earlier = copies(&test_node, &FILES);
    earlier[1] = Some(test_node.another_key().into_bytes());
    let present = copies(&test_node, &FILES);
    let copies = Copies { earlier, later: present.clone(), present };
    run_matrix(&mut test_node, "an older agent", &FILES, &copies, MATRIX_WITHOUT_LEDGER_ID).await;
}

#[tokio::test]
async fn ledger_without_an_id_is_adopted_and_required_afterwards() {
    for has_key_file in [true, false] {
        let mut test_node = TestNode::new().await;
        test_node.end(&statement(1)).await;
        test_node.enroll_without_ledger_id(has_key_file).await;
        let (identity, ledger) = (test_node.text(IDENTITY).await, test_node.text(LEDGER).await);
        assert!(!identity.contains("digest") && !ledger.contains("digest"));
        assert_eq!(started_with_one(&mut test_node).await, (Serves, String::new()));
        assert!(test_node.text(IDENTITY).await.contains("digest") && test_node.text(LEDGER).await.contains("digest"));
        // The agent died, or the disk was full, this many times after it wrote the ledger: before or after it wrote the head, and before it
        // wrote the identity.
        for (has_head, times) in [(true, 1), (false, 1), (false, 3)] {
            place_file(&test_node, LEDGER, Some(ledger.as_bytes()));
            place_file(&test_node, HEAD, None);
            for _ in 0..=times {
                place_file(&test_node, IDENTITY, Some(identity.as_bytes()));
                if !has_head {
                    place_file(&test_node, HEAD, None);
                }
                assert_eq!(started_with_one(&mut test_node).await, (Serves, String::new()), "{has_head} {times}");
            }
        }
        // Both are restored to their earlier versions, but the head is not.
        place_file(&test_node, LEDGER, Some(ledger.as_bytes()));
        place_file(&test_node, IDENTITY, Some(identity.as_bytes()));
        assert_eq!(started_with_one(&mut test_node).await.0, RefusesTasks);
        place_file(&test_node, LEDGER, None);
        assert_eq!(started_with_one(&mut test_node).await.0, RefusesTasks);
    }
}

/// Starts a node that has done one task.
async fn started_with_one(test_node: &mut TestNode) -> (Outcome, String) {
    test_node.start().await.unwrap();
    let detail = test_node.runner.problem().map(|problem| problem.detail.clone());
    match detail {
        Some(detail) => (RefusesTasks, detail),
        None => {
            assert_eq!(test_node.ended().await, [task(1)]);
            (Serves, String::new())
        }
    }
}

#[tokio::test]
async fn identity_of_an_earlier_enrollment_is_detected_by_the_ledger() {
    let (mut test_node, copies) = test_node().await;
    let earlier = test_node.identity_of(2).await;
    place_file(&test_node, ENROLL, None);
    place_file(&test_node, IDENTITY, Some(earlier.as_bytes()));
    let error = test_node.start().await.unwrap_err();
    assert!(matches!(&error, AgentError::Identity { what, .. } if what.contains("earlier enrollment")), "{error}");
    assert_eq!(error.exit() as u8, 9);
    assert!(error.user_message().contains("/docs/errors/agent_identity_damaged "), "{}", error.user_message());
    // If ledger and head are both restored, the node cannot detect it. The tasks of that time have expired, and the control plane sends no
    // task twice.
    for (file, content) in FILES.iter().zip(&copies.present) {
        place_file(&test_node, file, content.as_deref());
    }
    test_node.start().await.unwrap();
    let known = test_node.runner.ledger_mark().await.unwrap();
    for at in [1, 2] {
        place_file(&test_node, FILES[at], copies.earlier[at].as_deref());
    }
    test_node.start().await.unwrap();
    let back = test_node.runner.ledger_mark().await.unwrap();
    assert_eq!((&back.id, back.written, known.written), (&known.id, 2, 4));
}

#[tokio::test]
async fn enrollment_continues_only_the_ledger_of_its_own_node() {
    let (mut test_node, _) = test_node().await;
    let named = test_node.expected.id.clone();
    let prepare = async |test_node: &TestNode, expected: &ExpectedLedger, was_enrolled: bool| {
        Ledger::prepare(&test_node.host, expected, was_enrolled, now()).await.unwrap()
    };
    assert_eq!(Some(prepare(&test_node, &test_node.expected, true).await), named);
    // The agent died between ledger and identity, in its first or a later enrollment.
    let expected = ExpectedLedger { id: None, ..test_node.expected.clone() };
    assert_eq!(Some(prepare(&test_node, &expected, false).await), named);
    // A machine that becomes another node, and one with a damaged ledger, start with a new ledger: nothing earlier applies to the new
    // enrollment.
    let other = ExpectedLedger { node: "0198c0de-7a3b-7c11-9b54-0242ac120009".parse().unwrap(), ..expected.clone() };
    let whole = test_node.text(LEDGER).await;
    let of_other = prepare(&test_node, &other, false).await;
    assert_ne!(Some(&of_other), named.as_ref());
    test_node.start().await.unwrap();
    assert_eq!(test_node.runner.problem().map(|problem| problem.kind), Some(AgentProblemKind::LedgerOlder));
    place_file(&test_node, LEDGER, Some(&whole.as_bytes()[..whole.len() / 2]));
    let replaced = prepare(&test_node, &test_node.expected, true).await;
    assert_ne!(Some(&replaced), named.as_ref());
    test_node.expected.id = Some(replaced);
    test_node.enroll(7).await;
    test_node.start().await.unwrap();
    assert_eq!((test_node.runner.problem(), test_node.ended().await), (None, Vec::new()));
}

#[tokio::test]
async fn invalid_enrollment_string_leaves_damaged_files_in_place() {
    let (mut test_node, copies) = test_node().await;
    place_file(&test_node, ENROLL, Some(b"gpuaas1.nonsense"));
    place_file(&test_node, LEDGER, Some(b"nonsense\n"));
    test_node.start().await.unwrap();
    assert!(test_node.runner.problem().is_some());
    assert_eq!(test_node.text(LEDGER).await, "nonsense\n", "the damaged ledger stays in place");
    // The error is about the identity, not about the string.
    place_file(&test_node, LEDGER, copies.present[1].as_deref());
    let half = copies.present[0].as_ref().map(|identity| &identity[..identity.len() / 2]);
    place_file(&test_node, IDENTITY, half);
    let error = test_node.start().await.unwrap_err();
    assert!(matches!(error, AgentError::Identity { .. }), "{error}");
}

#[tokio::test]
async fn unenrolled_machine_and_leftover_ledger_give_different_errors() {
    let test_node = TestNode::new().await;
    let options = super::test_node::options();
    let refused = async || enroll::load_enroll_or_keep(&test_node.host, &options).await.err().expect("no identity");
    assert!(matches!(refused().await, AgentError::Identity { .. }));
    for file in [LEDGER, HEAD] {
        test_node.host.files().remove(file.into()).await.unwrap();
    }
    assert!(matches!(refused().await, AgentError::NotEnrolled(_)));
    let folder = FileSpec { path: KEY.into(), mode: 0o600, content: Vec::new() };
    test_node.host.files().write(&folder).await.unwrap();
    assert!(matches!(state::load(&test_node.host).await, Err(AgentError::Identity { .. })));
}
