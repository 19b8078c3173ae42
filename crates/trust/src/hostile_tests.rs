//! Applies 1,000 random mutations to each kind of trust document, with a fixed seed per kind. None may be accepted.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gpuaas_model::{NodeId, ReplicaId, TaskType, Timestamp};
use gpuaas_test_support::SeededEntropy;
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, ServerName, UnixTime, pem::PemObject};
use serde_json::{Value, json};

use crate::{
    Authority, EnrollmentString, Envelope, NodeIdentity, NodeKey, PinnedAuthority, ReplicaIdentity, SealingKey,
    SecretText, SignedKeySet, SigningKeySet, TaskSigner, TaskStatement, TokenKey, renewal::channel_client_verifier,
    sha256_hex,
};

/// Number of mutations per kind.
const CASES: u32 = 1_000;
const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const ID: &str = "0198c0de-7a3b-7c11-9b54-0242ac120002";

/// A change to a byte string.
#[derive(Clone, Debug)]
enum Mutation {
    Flip { at: Index, bits: u8 },
    Remove { at: Index, count: usize },
    Insert { at: Index, bytes: Vec<u8> },
    Repeat { at: Index, count: usize },
    Swap { one: Index, other: Index },
    Cut { at: Index },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), 1_u8..=255).prop_map(|(at, bits)| Mutation::Flip { at, bits }),
        2 => (at(), 1_usize..32).prop_map(|(at, count)| Mutation::Remove { at, count }),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..32)).prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
        1 => (at(), 1_usize..64).prop_map(|(at, count)| Mutation::Repeat { at, count }),
        1 => (at(), at()).prop_map(|(one, other)| Mutation::Swap { one, other }),
        1 => at().prop_map(|at| Mutation::Cut { at }),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let end = |from: usize, count: usize, length: usize| (from + count).min(length);
        match self {
            Self::Flip { at, bits } => {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            Self::Remove { at, count } => {
                let at = at.index(bytes.len());
                bytes.drain(at..end(at, *count, bytes.len()));
            }
            Self::Insert { at, bytes: more } => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Repeat { at, count } => {
                let at = at.index(bytes.len());
                let part = bytes[at..end(at, *count, bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            Self::Swap { one, other } => {
                let (one, other) = (one.index(bytes.len()), other.index(bytes.len()));
                bytes.swap(one, other);
            }
            Self::Cut { at } => bytes.truncate(at.index(bytes.len())),
        }
    }
}

/// Result of checking a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Accepted,
    Refused,
    /// Different bytes that parse to the same document.
    Same,
}

fn outcome_of(accepted: bool) -> Outcome {
    if accepted { Outcome::Accepted } else { Outcome::Refused }
}

/// Asserts that `check` accepts `document` and refuses [`CASES`] different mutations of it.
fn assert_mutations_refused(kind: &str, document: &[u8], check: impl Fn(&[u8]) -> Outcome) {
    assert_ne!(check(document), Outcome::Refused, "{kind}: the unchanged document is accepted");
    let seed: [u8; 32] = std::array::from_fn(|at| kind.as_bytes()[at % kind.len()]);
    let config = Config { cases: CASES, failure_persistence: None, max_global_rejects: CASES, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let tried = std::cell::Cell::new(0);
    let outcome = runner.run(&prop::collection::vec(mutation(), 1..=3), |mutations| {
        let mut mutated = document.to_vec();
        mutations.iter().for_each(|mutation| mutation.apply(&mut mutated));
        if mutated == document {
            return Err(TestCaseError::reject("nothing changed"));
        }
        match check(&mutated) {
            Outcome::Same => Err(TestCaseError::reject("the same document")),
            Outcome::Accepted => Err(TestCaseError::fail(String::from_utf8_lossy(&mutated).into_owned())),
            Outcome::Refused => {
                tried.set(tried.get() + 1);
                Ok(())
            }
        }
    });
    outcome.unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert!(tried.get() >= CASES, "{kind}: {}", tried.get());
}

fn authority() -> Authority {
    Authority::generate("cp-1", NOW).unwrap()
}

fn params(task: TaskType) -> Value {
    let secret = json!({ "secret_id": ID, "sha256": "ab".repeat(32) });
    let artifact = json!({ "name": "rke2.linux-amd64.tar.gz", "sha256": "cd".repeat(32), "size_bytes": 7 });
    match task {
        TaskType::Noop | TaskType::Inspect | TaskType::Rke2Uninstall => json!({}),
        TaskType::Preflight => {
            json!({ "ports": [6443], "absent_paths": ["/a"], "endangered_paths": [], "free_bytes_min": 1 })
        }
        TaskType::Residue => {
            json!({ "paths": ["/a"], "mount_prefixes": [], "ports": [6443], "units": [], "process_prefixes": [] })
        }
        TaskType::Fix => json!({ "kind": "inotify" }),
        TaskType::ArtifactFetch => json!({ "artifacts": [artifact] }),
        TaskType::Rke2Install => json!({ "version": "v1.36.3+rke2r1", "archive": artifact, "images": [] }),
        TaskType::Rke2Configure => json!({ "role": "server", "config": "token-file: /t\n", "token": secret }),
        TaskType::Rke2Start => json!({ "role": "server", "give_up_on": [], "restarts_max": 3 }),
        TaskType::Rke2Stop | TaskType::Rke2Enable | TaskType::Rke2Observe => json!({ "role": "server" }),
        TaskType::Rke2KubeconfigRead => json!({ "secret_id": ID }),
    }
}

fn statement(task: TaskType) -> TaskStatement {
    TaskStatement {
        control_plane: "cp-1".into(),
        node: ID.parse().unwrap(),
        epoch: 1,
        allocation: None,
        workload: Some(ID.parse().unwrap()),
        operation: Some(ID.parse().unwrap()),
        step: Some(ID.parse().unwrap()),
        attempt: 1,
        task: ID.parse().unwrap(),
        task_type: task.as_str().into(),
        schema: 1,
        params: params(task),
        issued_at: NOW,
        expires_at: NOW.plus(std::time::Duration::from_secs(60)),
        fence: 4,
        correlation: ID.parse().unwrap(),
    }
}

#[test]
fn no_mutation_of_a_task_envelope_of_any_type_is_accepted() {
    let signer = TaskSigner::from_seed(&[7; 32]);
    let keys = SigningKeySet {
        version: 1,
        keys: vec![signer.public(gpuaas_model::KeyState::Active)],
        expires_at: NOW.plus(SigningKeySet::LIFE),
        authorities: Vec::new(),
    };
    let mut types = BTreeSet::new();
    for &task in TaskType::ALL {
        let envelope = signer.sign(&statement(task)).unwrap();
        assert_mutations_refused(task.as_str(), envelope.to_json().as_bytes(), |bytes| {
            match serde_json::from_slice::<Envelope>(bytes) {
                Ok(read) if read == envelope => Outcome::Same,
                _ => outcome_of(Envelope::verify(bytes, &keys, NOW).is_ok()),
            }
        });
        types.insert(task.as_str());
    }
    assert_eq!(types.len(), TaskType::ALL.len());
}

#[test]
fn no_mutation_of_a_signing_key_set_is_accepted() {
    let authority = authority();
    let set = SigningKeySet {
        version: 3,
        keys: vec![TaskSigner::from_seed(&[7; 32]).public(gpuaas_model::KeyState::Active)],
        expires_at: NOW.plus(SigningKeySet::LIFE),
        authorities: Vec::new(),
    };
    let signed = set.sign(&authority).unwrap();
    assert_mutations_refused("signing-key set", &serde_json::to_vec(&signed).unwrap(), |bytes| {
        match serde_json::from_slice::<SignedKeySet>(bytes) {
            Ok(read) if read == signed => Outcome::Same,
            Ok(read) => outcome_of(read.verify(authority.certificates(), None, NOW).is_ok()),
            Err(_) => Outcome::Refused,
        }
    });
}

#[test]
fn no_mutation_of_an_enrollment_string_is_accepted() {
    let string = EnrollmentString {
        url: "https://127.0.0.1:7443".into(),
        control_plane: "cp-1".into(),
        node: ID.parse().unwrap(),
        name: "gpu-07".parse().unwrap(),
        token: SecretText::new("t".repeat(43)),
        ca_sha256: "ab".repeat(32),
        expires_at: NOW,
    };
    let string = string.encode();
    assert_mutations_refused("enrollment string", string.expose().as_bytes(), |bytes| {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.trim() == string.expose() => Outcome::Same,
            Ok(text) => outcome_of(EnrollmentString::decode(text).is_ok()),
            Err(_) => Outcome::Refused,
        }
    });
}

/// Returns true if the channel accepts a client with this certificate.
fn channel_accepts(authority: &Authority, certificate: &[u8]) -> bool {
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_millis(NOW.as_millis().unsigned_abs()));
    let certificate = CertificateDer::from(certificate.to_vec());
    channel_client_verifier(authority.certificates()).unwrap().verify_client_cert(&certificate, &[], at).is_ok()
}

#[test]
fn no_mutation_of_a_nodes_certificate_is_accepted() {
    let authority = authority();
    let node: NodeId = ID.parse().unwrap();
    let identity = NodeIdentity { control_plane: "cp-1".into(), node, epoch: 3 };
    let pem = authority.issue_node(&NodeKey::generate().unwrap().request_pem().unwrap(), &identity, NOW).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_mutations_refused("node certificate", &der, |bytes| outcome_of(channel_accepts(&authority, bytes)));
}

#[test]
fn no_mutation_of_a_replicas_certificate_is_accepted() {
    let authority = authority();
    let replica: ReplicaId = ID.parse().unwrap();
    let (chain, _) = authority.issue_replica(&ReplicaIdentity { control_plane: "cp-1".into(), replica }, NOW).unwrap();
    assert_mutations_refused("replica certificate", &chain[0], |bytes| outcome_of(channel_accepts(&authority, bytes)));
}

/// Returns true if an agent that pinned the authority accepts a server with this chain.
fn agent_trusts(authority: &Authority, end: &[u8], shown: &[u8]) -> bool {
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_millis(NOW.as_millis().unsigned_abs()));
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let (end, shown) = (CertificateDer::from(end.to_vec()), CertificateDer::from(shown.to_vec()));
    PinnedAuthority::new(&authority.digest()).verify_server_cert(&end, &[shown], &name, &[], at).is_ok()
}

#[test]
fn no_mutation_of_a_servers_certificate_or_of_the_pinned_authority_is_accepted() {
    let authority = authority();
    let (chain, _) = authority.issue_server(&["127.0.0.1".to_owned()], NOW).unwrap();
    assert_mutations_refused("server certificate", &chain[0], |bytes| {
        outcome_of(agent_trusts(&authority, bytes, &chain[1]))
    });
    assert_mutations_refused("authority certificate", &chain[1], |bytes| {
        outcome_of(agent_trusts(&authority, &chain[0], bytes))
    });
}

#[test]
fn no_mutation_of_a_certificate_request_is_accepted() {
    let authority = authority();
    let identity = NodeIdentity { control_plane: "cp-1".into(), node: ID.parse().unwrap(), epoch: 3 };
    let pem = NodeKey::generate().unwrap().request_pem().unwrap();
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_mutations_refused("certificate request", &der, |bytes| {
        let body = STANDARD.encode(bytes);
        let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
        outcome_of(authority.issue_node(&pem, &identity, NOW).is_ok())
    });
}

#[test]
fn no_mutation_of_a_token_is_accepted() {
    let key = TokenKey::new(&[1; TokenKey::BYTES]);
    let token = key.generate("gpuaas", &SeededEntropy::of_seed(1));
    assert_mutations_refused("token", token.text.expose().as_bytes(), |bytes| {
        outcome_of(sha256_hex(bytes) == token.sha256)
    });
    assert_mutations_refused("code of a token", token.text.expose().as_bytes(), |bytes| {
        outcome_of(std::str::from_utf8(bytes).is_ok_and(|text| key.has_valid_code("gpuaas", text)))
    });
}

#[test]
fn no_mutation_of_a_sealed_secret_is_accepted() {
    let key = SealingKey::new(&[1; 32]).unwrap();
    let sealed = key.seal(b"secret-1", b"apiVersion: v1\nkind: Config\n").unwrap();
    assert_mutations_refused("sealed secret", &sealed, |bytes| outcome_of(key.open(b"secret-1", bytes).is_ok()));
}
