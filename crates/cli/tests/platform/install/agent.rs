//! `gpuaas-agent enroll` and `gpuaas-agent status`, called as the installation script calls them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use gpuaas_trust::{EnrollmentString, SecretText};
use serde_json::Value;

use super::machine::describe_output;
use crate::world::{GPUAAS, Platform, build_programs};

/// The root folder of a node without init, because enrollment needs none.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        build_programs();
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("var/lib/gpuaas-agent")).expect("made");
        fs::create_dir_all(folder.path().join("etc")).expect("made");
        fs::write(folder.path().join("etc/machine-id"), format!("{}\n", "ab".repeat(16))).expect("written");
        Self(folder)
    }

    fn agent(&self, verb: &str) -> Output {
        let root = self.0.path();
        Command::new(Path::new(GPUAAS).with_file_name("gpuaas-agent"))
            .arg(verb)
            .env("GPUAAS_SANDBOX_ROOT", root)
            .env("GPUAAS_SANDBOX_ADDRESS", "127.0.0.1")
            // The underscore makes this an invalid DNS label.
            .env("GPUAAS_SANDBOX_HOSTNAME", "gpu_07")
            .env("GPUAAS_SANDBOX_SOCKET", root.join("none"))
            .output()
            .expect("an agent")
    }

    /// Writes the enrollment string to the agent's file, as the script does, and runs `enroll`.
    fn enroll(&self, string: &str) -> Output {
        fs::write(self.0.path().join("var/lib/gpuaas-agent/enroll"), string).expect("written");
        self.agent("enroll")
    }
}

fn string(platform: &Platform, verb: &str, name: &str) -> String {
    platform.json(&["node", verb, name])["enrollment"]["string"].as_str().expect("a string").to_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn enrollment_string_enrolls_one_machine_once_and_is_recognized_there() {
    let platform = Platform::start(0);
    let (node, string) = (Node::new(), string(&platform, "register", "gpu-07"));
    let first = node.enroll(&string);
    assert!(
        first.status.success() && stdout(&first).starts_with("enrolled as gpu-07 ("),
        "{}",
        describe_output(&first)
    );
    assert!(!node.0.path().join("var/lib/gpuaas-agent/enroll").exists());
    let again = node.enroll(&format!("  {string}\n"));
    assert!(
        again.status.success() && stdout(&again).starts_with("already enrolled as gpu-07 ("),
        "{}",
        describe_output(&again)
    );
    let status = stdout(&node.agent("status"));
    let shown = platform.json(&["node", "show", "gpu-07"]);
    let url = platform.ready()["url"].as_str().expect("a URL").to_owned();
    for line in
        [format!("node {}", shown["id"].as_str().expect("an id")), "name gpu-07".to_owned(), format!("url {url}")]
    {
        assert!(status.lines().any(|printed| printed == line), "{line}: {status}");
    }
    assert_eq!(shown["state"], "enrolled");
}

fn assert_refused(output: &Output, code: &str, status: i32) {
    let error = String::from_utf8_lossy(&output.stderr);
    let page = format!("/docs/errors/{code} · exit status {status}");
    assert!(output.status.code() == Some(status) && error.contains(&page), "{code}: {}", describe_output(output));
    assert!(!error.contains("gpuaas-enroll_") && !error.contains("gpuaas1.e"), "{error}");
    assert!(!code.starts_with("enrollment_") || error.contains("gpuaas node enroll"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_machines_with_the_same_string_is_refused() {
    let platform = Platform::start(0);
    let string = string(&platform, "register", "gpu-07");
    let both = [Node::new(), Node::new()];
    let ends = std::thread::scope(|scope| {
        let runs: Vec<_> = both.iter().map(|node| scope.spawn(|| node.enroll(&string))).collect();
        runs.into_iter().map(|run| run.join().expect("it ran")).collect::<Vec<_>>()
    });
    let won = ends.iter().filter(|end| end.status.success()).count();
    assert_eq!(won, 1, "{:?}", ends.iter().map(describe_output).collect::<Vec<_>>());
    let lost = ends.iter().find(|end| !end.status.success()).expect("one");
    assert_refused(lost, "enrollment_used", 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_enrollment_strings_get_distinct_codes() {
    let (platform, other) = (Platform::start(0), Platform::start(0));
    let first = string(&platform, "register", "gpu-07");
    let newer = string(&platform, "enroll", "gpu-07");
    assert_refused(&Node::new().enroll(&first), "enrollment_expired", 4);
    assert_refused(&Node::new().enroll(&newer[..newer.len() - 1]), "install_string_damaged", 4);
    let of_other = string(&platform, "register", "gpu-09");
    let mut mixed = EnrollmentString::decode(&of_other).expect("a string");
    mixed.node = EnrollmentString::decode(&newer).expect("a string").node;
    assert_refused(&Node::new().enroll(mixed.encode().expose()), "enrollment_token_mismatch", 6);
    mixed.token = SecretText::new("gpuaas-enroll_made-up".to_owned());
    assert_refused(&Node::new().enroll(mixed.encode().expose()), "enrollment_invalid", 4);
    mixed.ca_sha256 = "ab".repeat(32);
    assert_refused(&Node::new().enroll(mixed.encode().expose()), "server_unreachable", 7);
    assert_refused(&Node::new().enroll("nonsense"), "install_string_unknown", 4);
    assert_refused(&Node::new().agent("enroll"), "install_not_enrolled", 3);
    assert_refused(&Node::new().agent("status"), "install_not_enrolled", 3);
    let node = Node::new();
    assert!(node.enroll(&newer).status.success());
    // A string of another node, then a string of another control plane.
    assert_refused(&node.enroll(&string(&platform, "register", "gpu-08")), "install_already_enrolled", 5);
    assert_refused(&node.enroll(&string(&other, "register", "gpu-07")), "install_already_enrolled", 5);
    let kept: Value = serde_json::from_slice(
        &fs::read(node.0.path().join("var/lib/gpuaas-agent/identity.json")).expect("it is there"),
    )
    .expect("JSON");
    assert_eq!(kept["name"], "gpu-07", "the identity was replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_reports_damaged_files_with_their_own_exit_status() {
    let platform = Platform::start(0);
    let node = Node::new();
    assert!(node.enroll(&string(&platform, "register", "gpu-07")).status.success());
    let kept = |name: &str| node.0.path().join("var/lib/gpuaas-agent").join(name);
    let (identity, ledger) =
        (fs::read(kept("identity.json")).expect("kept"), fs::read(kept("ledger.jsonl")).expect("kept"));
    assert!(node.agent("status").status.success());

    fs::remove_file(kept("ledger.jsonl")).expect("removed");
    let status = node.agent("status");
    assert_refused(&status, "agent_ledger_damaged", 9);
    assert!(stdout(&status).contains("name gpu-07"), "the name is not printed: {}", describe_output(&status));
    fs::write(kept("ledger.jsonl"), &ledger).expect("written");
    assert!(node.agent("status").status.success(), "status changed something");

    let mut flipped = identity.clone();
    flipped[identity.len() / 2] ^= 1;
    fs::write(kept("identity.json"), flipped).expect("written");
    let status = node.agent("status");
    assert_refused(&status, "agent_identity_damaged", 9);
    let error = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(error.contains("identity.json is damaged") && error.contains("gpuaas node enroll NODE --force"), "{error}");
    fs::remove_file(kept("identity.json")).expect("removed");
    assert_refused(&node.agent("status"), "agent_identity_damaged", 9);
}
