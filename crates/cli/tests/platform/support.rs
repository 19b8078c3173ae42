//! The contents of the support bundle that `gpuaas support bundle` writes.

use std::{collections::BTreeMap, io::Read, os::unix::fs::PermissionsExt};

use flate2::read::GzDecoder;
use gpuaas_api_types::{CreateAllocation, CreateProject, RegisterNode};

use crate::world::{GPUAAS, Platform, token_request};

fn unpacked(file: &std::path::Path) -> BTreeMap<String, String> {
    let bytes = std::fs::File::open(file).expect("a bundle");
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    let entries = archive.entries().expect("an archive").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").strip_prefix("gpuaas-support").expect("its folder").to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name.to_string_lossy().into_owned(), text)
    });
    entries.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_contains_diagnostics_and_no_secret() {
    let platform = Platform::start(1);
    let admin = platform.client();
    admin.create_project(&CreateProject { name: "one".into() }).await.expect("made");
    let ask = CreateAllocation { project: "one".into(), node: "demo-1".into() };
    admin.create_allocation(&ask).await.expect("made");
    admin.ping_node("demo-1").await.expect("an answer");
    let machine = RegisterNode { name: "gpu-09".into(), ..RegisterNode::default() };
    let enrollment = admin.register_node(&machine).await.expect("registered").enrollment.string;
    let token = platform.ready()["token"].as_str().expect("a token").to_owned();
    let (log, file) = (platform.file("server.log"), platform.file("bundle.tar.gz"));
    let log_text =
        format!("started with {token}\nenroll {enrollment}\nclient-key-data: c2VjcmV0LWtleQ==\nall is well\n");
    std::fs::write(&log, log_text).expect("written");
    let (log, path) = (log.to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let other = platform.file("other/server.log");
    std::fs::create_dir_all(other.parent().expect("a folder")).expect("made");
    std::fs::write(&other, "of another replica\n").expect("written");
    let other = other.to_string_lossy().into_owned();
    let ended = platform.gpuaas(&["support", "bundle", "--file", &path, "--add", &log, "--add", &other]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let entries = unpacked(&file);
    for name in
        ["nodes.json", "tasks.json", "events.json", "audit.json", "signing-keys.json", "metrics.txt", "readyz.txt"]
    {
        assert!(entries.get(name).is_some_and(|text| text.len() > 10), "{name}: {:?}", entries.keys());
    }
    assert!(!entries.contains_key("missing.json"), "{:?}", entries.get("missing.json"));
    assert!(entries["nodes.json"].contains("demo-1") && entries["tasks.json"].contains("host.noop"));
    assert!(entries["added/server.log"].contains("all is well"));
    assert!(entries["added/2/server.log"].contains("of another replica"));
    assert!(entries["events/one.json"].contains("allocation.changed"), "a project's own stream is there");
    let whole = entries.values().fold(String::new(), |whole, text| whole + text);
    for secret in [token.as_str(), &enrollment, "c2VjcmV0LWtleQ=="] {
        assert!(!whole.contains(secret), "a secret is in the bundle");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_a_restricted_role_lists_what_is_missing() {
    let platform = Platform::start(0);
    let admin = platform.client();
    admin.create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let ask = token_request("viewer", "viewer", Some("ours"));
    let token = admin.create_token(&ask).await.expect("made").secret;
    let file = platform.file("bundle.tar.gz");
    let mut bundle = std::process::Command::new(GPUAAS);
    bundle.args(["support", "bundle", "--file"]).arg(&file);
    bundle.env("GPUAAS_READY_FILE", &platform.ready_file).env("GPUAAS_TOKEN", &token);
    let ended = bundle.output().expect("gpuaas runs");
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && printed.contains("missing: nodes: "), "{printed}");
    let entries = unpacked(&file);
    assert!(entries["about.json"].contains("viewer") && entries.contains_key("workloads.json"), "{:?}", entries.keys());
    assert!(entries["missing.json"].contains("nodes: ") && !entries.contains_key("nodes.json"), "{:?}", entries.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_reads_all_pages_of_a_list() {
    let platform = Platform::start(0);
    let admin = platform.client();
    // One more than a page of events holds.
    for number in 0..201 {
        let ask = token_request(&format!("token-{number:03}"), "platform-operator", None);
        admin.create_token(&ask).await.expect("made");
    }
    let file = platform.file("bundle.tar.gz");
    assert!(platform.gpuaas(&["support", "bundle", "--file", &file.to_string_lossy()]).status.success());
    let entries = unpacked(&file);
    for list in ["events.json", "audit.json"] {
        let reported = (0..201).filter(|number| entries[list].contains(&format!("token-{number:03}"))).count();
        assert_eq!(reported, 201, "{list}");
    }
}
