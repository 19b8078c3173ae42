//! Searches for every secret of a deployment in all places where none belongs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use gpuaas_api_types::{CreateServiceAccount, CreateServiceAccountToken, CreateToken, RegisterNode, RequestAccess};

use crate::world::{PROJECT, Platform};

/// Minimum length of a secret; shorter ones could match by chance.
const SECRET_BYTES_MIN: usize = 16;

/// Secrets by source.
#[derive(Default)]
struct Canaries(BTreeMap<String, String>);

impl Canaries {
    fn add(&mut self, from: impl Into<String>, secret: &str) {
        let (from, secret) = (from.into(), secret.trim());
        assert!(secret.len() >= SECRET_BYTES_MIN, "{from} holds {secret:?}, which is too short for a secret");
        self.0.insert(from, secret.to_owned());
    }

    /// Adds a line from the middle of a PEM file.
    fn add_pem(&mut self, from: &Path) {
        let text = std::fs::read_to_string(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        self.add_pem_text(from, &text);
    }

    /// Adds the private key in a node's identity file.
    fn add_identity(&mut self, from: &Path) {
        let text = std::fs::read_to_string(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        let identity: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        self.add_pem_text(from, identity["key"].as_str().expect("a key"));
    }

    fn add_pem_text(&mut self, from: &Path, text: &str) {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("-----")).collect();
        self.add(from.display().to_string(), lines[lines.len() / 2]);
    }

    /// Returns each form of each secret, with the secret's source.
    fn all_forms(&self) -> Vec<(&str, String)> {
        self.0.iter().flat_map(|(from, secret)| forms(secret).into_iter().map(|form| (from.as_str(), form))).collect()
    }
}

/// Returns the forms in which a secret may appear: verbatim, in hex, and in base64 at each of the three alignments.
fn forms(secret: &str) -> Vec<String> {
    let in_hex = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let in_base64 = (0..3).map(|skipped| {
        let rest = &secret.as_bytes()[skipped..];
        // Only whole groups of three bytes: the bytes that follow change the last group.
        STANDARD.encode(&rest[..rest.len() / 3 * 3])
    });
    [secret.to_owned(), in_hex].into_iter().chain(in_base64).collect()
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, into),
            Ok(kind) if kind.is_file() => into.push(path),
            _ => {}
        }
    }
}

/// Collects the contents of all that the platform shows or keeps, apart from the files in which each secret belongs.
async fn visible_contents(platform: &Platform) -> Vec<(String, Vec<u8>)> {
    let mut places = Vec::new();
    let bundle = platform.file("bundle.tar.gz");
    let path = bundle.to_string_lossy().into_owned();
    assert!(platform.gpuaas(&["support", "bundle", "--file", &path]).status.success());
    let mut unpacked = Vec::new();
    let file = std::fs::File::open(&bundle).expect("a bundle");
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut unpacked).expect("gzip");
    assert!(memchr::memmem::find(&unpacked, b"task.dispatch").is_some(), "the bundle holds the audit");
    places.push(("the support bundle".to_owned(), unpacked));
    places
        .push(("the output of the processes".to_owned(), std::fs::read(platform.file("output.txt")).expect("a file")));
    let client = platform.client();
    let events = client.list_events(Some(PROJECT.into()), 0).await.expect("events").items;
    assert!(!events.is_empty());
    places.push(("the project's events".to_owned(), serde_json::to_vec(&events).expect("JSON")));
    for operation in client.list_operations(Some(PROJECT.into()), None, None).await.expect("operations").items {
        let detail = client.get_operation(&operation.id).await.expect("an operation");
        places.push((format!("operation {}", operation.kind), serde_json::to_vec(&detail).expect("JSON")));
    }
    let mut kept = Vec::new();
    files(&platform.file("data"), &mut kept);
    for path in kept {
        let text = path.to_string_lossy().into_owned();
        let is_database = text.contains("gpuaas.db") || text.contains(".sqlite");
        let is_journal = text.contains("/.sandbox/journal/") || text.ends_with(".log");
        let is_ledger = text.ends_with("ledger.jsonl");
        if is_database || is_journal || is_ledger {
            places.push((text, std::fs::read(path).unwrap_or_default()));
        }
    }
    for (pid, _) in platform.processes() {
        for name in ["cmdline", "environ"] {
            let path = format!("/proc/{pid}/{name}");
            places.push((path.clone(), std::fs::read(path).unwrap_or_default()));
        }
    }
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_search_finds_no_secret_in_logs_events_audit_bundle_arguments_environments_or_database() {
    let platform = Platform::with_release(2, &[]).await;
    let admin = platform.client();
    let project = || Some(PROJECT.to_owned());
    let mut canaries = Canaries::default();
    canaries.add("the admin's token", platform.ready()["token"].as_str().expect("a token"));
    let ask = CreateToken { name: "t".into(), role: "viewer".into(), project: project(), ttl_seconds: Some(600) };
    let under_a_key = admin.clone().with_idempotency_key("once");
    canaries.add("a token", &under_a_key.create_token(&ask).await.expect("made").secret);
    let account = CreateServiceAccount { name: "ci".into(), role: "viewer".into(), workload: None, project: project() };
    admin.create_service_account(&account).await.expect("made");
    let made = admin.create_service_account_token(project(), "ci", &CreateServiceAccountToken::default()).await;
    canaries.add("a service account's token", &made.expect("made").secret);
    let machine = RegisterNode { name: "gpu-09".into(), ..RegisterNode::default() };
    canaries.add("an enrollment string", &admin.register_node(&machine).await.expect("registered").enrollment.string);

    let deploy = platform.deployment("train", &[2]).await;
    let ended = platform.await_end(&admin.deploy_workload(&deploy).await.expect("accepted")).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
    let granted = admin.deliver_kubeconfig(project(), "train", &RequestAccess::default()).await.expect("granted");
    let token = granted.kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: "));
    canaries.add("the kubeconfig", token.expect("a token"));
    let server = |path: &str| platform.node_file(1, path);
    for file in ["var/lib/rancher/rke2/server/token", "var/lib/rancher/rke2/server/agent-token"] {
        let text = std::fs::read_to_string(server(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        // The part before the last colon holds the digest of a certificate, which is not secret.
        canaries.add(file, text.trim().rsplit(':').next().unwrap_or_default());
    }
    canaries.add_pem(&server("var/lib/rancher/rke2/server/tls/client-admin.key"));
    for node in [1, 2] {
        canaries.add_identity(&platform.node_file(node, "var/lib/gpuaas-agent/identity.json"));
    }
    let places = visible_contents(&platform).await;
    for kind in ["bundle", "output", "events", "operation", "cmdline", "environ", "journal", "ledger", "gpuaas.db"] {
        assert!(places.iter().any(|(place, bytes)| place.contains(kind) && !bytes.is_empty()), "no content of {kind}");
    }
    for (from, form) in canaries.all_forms() {
        let finder = memchr::memmem::Finder::new(form.as_bytes());
        for (place, bytes) in &places {
            assert!(finder.find(bytes).is_none(), "{place} holds the secret of {from}");
        }
    }
    println!("hostile: {} canaries looked for in {} places", canaries.0.len(), places.len());
}
