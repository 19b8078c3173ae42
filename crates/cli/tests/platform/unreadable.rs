//! Damaged rows, keys and artifacts of a stopped control plane: a start names the row, and `gpuaas server verify` names each loss.

use std::{fs, path::PathBuf};

use gpuaas_api_types::{CreateProject, RegisterNode};

use crate::{
    single_server::{SingleServer, Start},
    world::{build_programs, import_request, release},
};

/// Prepares the data directory of a stopped control plane with a project, a node and artifacts.
async fn stopped_control_plane() -> (tempfile::TempDir, PathBuf) {
    tokio::task::block_in_place(build_programs);
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let served: SingleServer = Start::default().on(&data).expect("it serves");
    let token = served.first_admin().await;
    let client = served.client(&token);
    client.import_artifacts(&import_request(release())).await.expect("imported");
    client.create_project(&CreateProject { name: "lab".into() }).await.expect("made");
    client.register_node(&RegisterNode { name: "gpu-1".into(), ..RegisterNode::default() }).await.expect("registered");
    served.end();
    (folder, data)
}

fn change(data: &std::path::Path, sql: &str) {
    let rows = rusqlite::Connection::open(data.join("gpuaas.db")).expect("a database");
    rows.execute_batch(&format!("pragma foreign_keys = off; {sql}")).expect("changed");
}

/// Runs `verify` and returns kind and place of each finding. Fails if there is none.
fn found(data: &std::path::Path) -> Vec<(String, String)> {
    let verified = Start::default().verb(data, &["verify", "-o", "json"]);
    assert_eq!(verified.status.code(), Some(1), "{}", String::from_utf8_lossy(&verified.stderr));
    let reported: serde_json::Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    let findings = reported["findings"].as_array().expect("a list").iter();
    let text = |finding: &serde_json::Value, name: &str| finding[name].as_str().expect("a text").to_owned();
    findings.map(|finding| (text(finding, "kind"), text(finding, "place"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn start_with_an_unreadable_row_names_file_table_row_and_next_step() {
    let (_folder, data) = stopped_control_plane().await;
    change(&data, "update settings set value = '' where name = 'control-plane.id'");
    let refusal = Start::default().on(&data).err().expect("refused");
    assert_eq!((refusal.code.as_str(), refusal.status), ("row_unreadable", Some(1)), "{}", refusal.stderr);
    for part in ["gpuaas.db", "table ", "row ", "column ", "gpuaas server verify"] {
        assert!(refusal.stderr.contains(part), "{part}: {}", refusal.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_names_every_kind_of_loss() {
    let (folder, data) = stopped_control_plane().await;
    let kinds = |data: &std::path::Path| found(data).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    let copy = |name: &str| {
        let to = folder.path().join(name);
        let copied = std::process::Command::new("cp").arg("-a").args([&data, &to]).status().expect("cp runs");
        assert!(copied.success());
        to
    };
    let artifact = copy("artifact");
    let file =
        fs::read_dir(artifact.join("artifacts")).expect("a folder").flatten().next().expect("an artifact").path();
    let mut bytes = fs::read(&file).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&file).expect("removed");
    fs::write(&file, bytes).expect("written");
    let of_artifact = found(&artifact);
    let digest = file.file_name().expect("a name").to_str().expect("a text");
    assert!(
        of_artifact.iter().all(|(kind, _)| kind == "artifact") && of_artifact[0].1.contains(digest),
        "{of_artifact:?}"
    );

    let key = copy("key");
    fs::remove_file(key.join("sealing.key")).expect("removed");
    assert_eq!(kinds(&key), ["key"]);

    let history = copy("history");
    fs::remove_file(history.join("history.mark")).expect("removed");
    assert_eq!(kinds(&history), ["history"]);

    let schema = copy("schema");
    change(&schema, "delete from schema_versions where version > 10");
    assert_eq!(kinds(&schema), ["schema"]);

    let reference = copy("reference");
    change(&reference, "update enrollments set node_id = 'nobody'");
    assert!(kinds(&reference).contains(&"foreign_key".to_owned()), "{:?}", found(&reference));

    let row = copy("row");
    change(&row, "update projects set doc = substr(doc, 1, 7) where name = 'lab'");
    let of_row = found(&row);
    assert!(of_row.iter().any(|(kind, place)| kind == "row" && place.contains("projects")), "{of_row:?}");

    let database = copy("database");
    let path = database.join("gpuaas.db");
    let mut bytes = fs::read(&path).expect("read");
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    bytes[middle..middle + 64].fill(0xa5);
    fs::write(&path, bytes).expect("written");
    assert!(kinds(&database).contains(&"database".to_owned()), "{:?}", found(&database));
}
