//! A control plane that is lost and restored from its backup, with nodes that kept running throughout.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Output};

use gpuaas_api_types::{EnrollNode, RegisterNode};
use gpuaas_client::{AuditQuery, Client};
use gpuaas_model::Code;
use gpuaas_postgres_server::Server;

use crate::{
    audit::sealed_head,
    fleet::Fleet,
    forged_rows::execute_sql,
    hostile_nodes::Node,
    world::{GPUAAS, Platform, eventually, import_request, release},
};

pub(crate) fn assert_refused(output: &Output, code: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains(code), "expected {code}, not {}: {printed}", output.status);
}

/// Alters a member of a backup; `None` leaves it out.
type Alteration = fn(&str, Vec<u8>) -> Option<(String, Vec<u8>)>;

const ALTERATIONS: [(&str, Alteration); 4] = [
    ("a changed row", |name, mut bytes| {
        if name == "rows.jsonl" {
            let at = bytes.windows(6).position(|text| text == b"\"gpu-1").expect("its node");
            bytes[at + 5] = b'7';
        }
        Some((name.to_owned(), bytes))
    }),
    ("another format", |name, bytes| match name {
        "backup.json" => {
            let manifest = String::from_utf8(bytes).expect("JSON");
            assert!(manifest.contains("\"format\": 1"), "{manifest}");
            Some((name.to_owned(), manifest.replace("\"format\": 1", "\"format\": 2").into_bytes()))
        }
        _ => Some((name.to_owned(), bytes)),
    }),
    ("a member of another name", |name, bytes| match name {
        "backup.json" => Some((name.to_owned(), bytes)),
        _ => Some((name.replace("artifacts/", "elsewhere/"), bytes)),
    }),
    ("fewer artifacts", |name, bytes| (!name.starts_with("artifacts/")).then(|| (name.to_owned(), bytes))),
];

pub(crate) fn altered_tar(
    backup: &[u8],
    mut change: impl FnMut(&str, Vec<u8>) -> Option<(String, Vec<u8>)>,
) -> Vec<u8> {
    let mut altered = tar::Builder::new(Vec::new());
    for member in tar::Archive::new(backup).entries().expect("a tar") {
        let mut member = member.expect("a member");
        let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut member, &mut bytes).expect("read");
        if let Some((name, bytes)) = change(&name, bytes) {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            altered.append_data(&mut header, name, bytes.as_slice()).expect("appended");
        }
    }
    altered.into_inner().expect("whole")
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_control_plane_is_restored_with_its_nodes() {
    lost_and_restored(Fleet::start(1).await, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_backup_restores_into_postgresql() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    lost_and_restored(Fleet::start(1).await, Some(url)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_backup_restores_into_another_database() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let mut fleet = Fleet::start_on(1, 1, Some(server.fresh_database().await)).await;
    let unused = RegisterNode { name: "gpu-3".to_owned(), ..RegisterNode::default() };
    fleet.client().register_node(&unused).await.expect("registered");
    let backup = fleet.path("backup.tar").to_string_lossy().into_owned();
    let made = fleet.server_verb(&["backup", &backup]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fleet.kill_server();
    std::fs::rename(fleet.data_dir(), fleet.path("lost")).expect("moved");
    fleet.point_at(server.fresh_database().await);
    let restored = fleet.server_verb(&["restore", &backup]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    fleet.start_server();
    fleet.exchange_one_time_admin().await;
    let nodes = fleet.client().list_nodes(None, None).await.expect("listed").items;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["gpu-1", "gpu-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_restore_is_completed_at_the_next_start() {
    let mut fleet = Fleet::start(0).await;
    let client = fleet.client();
    let signing_key = client.list_signing_keys().await.expect("keys").items.remove(0).id;
    fleet.kill_server();
    // The rows are restored, but the credentials that must not return with them have not been revoked yet.
    execute_sql(&fleet, "insert into settings (name, value) values ('restore.unfinished', x'30')").await;
    fleet.start_server();
    let refused = client.whoami().await.expect_err("its token is revoked");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    fleet.exchange_one_time_admin().await;
    let keys = fleet.client().list_signing_keys().await.expect("keys").items;
    let states: Vec<_> = keys.iter().map(|key| (key.id == signing_key, key.state.as_str())).collect();
    assert_eq!(states, [(true, "revoked"), (false, "active")]);
    let audit = fleet.client().list_audit(&AuditQuery::default()).await.expect("listed").items;
    assert_eq!(audit.iter().filter(|record| record.action == "server.credentials_end").count(), 1);
}

#[test]
fn existing_file_is_replaced_only_with_force() {
    let platform = Platform::start(0);
    let (data, file) = (platform.file("data/server"), platform.file("written"));
    let (data, path) = (data.to_string_lossy(), file.to_string_lossy());
    let backup = ["server", "backup", &path, "--data-dir", &data];
    let bundle = ["support", "bundle", "--file", &path];
    // Refused before it looks for the archive.
    let archive = ["archive", "get", "no-such-archive", "--file", &path];
    for command in [&backup[..], &bundle, &archive] {
        std::fs::write(&file, "kept").expect("written");
        let refused = platform.gpuaas(command);
        assert_eq!(refused.status.code(), Some(2), "{command:?}");
        assert_refused(&refused, "replace it with --force");
        assert_eq!(std::fs::read(&file).expect("a file"), b"kept", "{command:?}");
    }
    for command in [&backup[..], &bundle] {
        let forced = platform.gpuaas(&[command, &["--force"]].concat());
        assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
        let first = std::fs::read(&file).expect("a file");
        assert_refused(&platform.gpuaas(command), "replace it with --force");
        assert!(first.len() > 4 && std::fs::read(&file).expect("a file") == first, "{command:?}");
    }
}

async fn lost_and_restored(mut fleet: Fleet, onto: Option<String>) {
    let client = fleet.client();
    client.import_artifacts(&import_request(release())).await.expect("imported");
    let artifacts = client.list_artifacts().await.expect("listed").items;
    let signing_key = client.list_signing_keys().await.expect("keys").items.remove(0).id;
    let copied = Node::enrolled(&client, "gpu-2").await;
    assert!(copied.is_accepted(&copied.certificate).await);
    let unused = RegisterNode { name: "gpu-3".to_owned(), ..RegisterNode::default() };
    let unused = client.register_node(&unused).await.expect("registered").enrollment.string;
    let (file, path) = (fleet.path("backup.tar"), fleet.path("backup.tar").to_string_lossy().into_owned());
    let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(&fleet.data_dir().join("gpuaas.db")), 0o600);
    let head = sealed_head(&client).await;
    // A file of the user, which the backup must not take for its own.
    std::fs::write(fleet.path("backup.draft"), "kept").expect("written");
    let backup = fleet.server_verb(&["backup", &path]);
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    assert_eq!(std::fs::read_to_string(fleet.path("backup.draft")).expect("it remains"), "kept");
    assert_eq!(mode(&file), 0o600);
    // Enrolled again after the backup, which knows nothing of these epochs.
    let enroll_again = async |client: &Client| {
        let issued = client.issue_enrollment("gpu-2", &EnrollNode::default()).await.expect("issued");
        Node::enroll(&issued.enrollment.string).await.expect("enrolled")
    };
    let later = [enroll_again(&client).await, enroll_again(&client).await];
    assert!(later[1].is_accepted(&later[1].certificate).await);
    fleet.kill_server();
    assert_refused(&fleet.server_verb(&["restore", &path]), "store_not_empty");

    std::fs::rename(fleet.data_dir(), fleet.path("lost")).expect("moved");
    if let Some(url) = onto {
        fleet.move_to(url);
    }
    let whole = std::fs::read(&file).expect("a backup");
    let torn = fleet.path("torn.tar");
    std::fs::write(&torn, &whole[..whole.len() / 2]).expect("written");
    assert_refused(&fleet.server_verb(&["restore", &torn.to_string_lossy()]), "backup_invalid");
    for (what, change) in ALTERATIONS {
        let altered = fleet.path("altered.tar");
        std::fs::write(&altered, altered_tar(&whole, change)).expect("written");
        println!("    a backup with {what}");
        assert_refused(&fleet.server_verb(&["restore", &altered.to_string_lossy()]), "backup_invalid");
    }
    let restored = fleet.server_verb(&["restore", &path]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));

    let printed = String::from_utf8_lossy(&restored.stdout).into_owned();
    assert!(printed.contains("gpu-1") && printed.contains("gpuaas node enroll"), "{printed}");

    fleet.start_server();
    let refused = client.whoami().await.expect_err("every earlier token is revoked");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    fleet.exchange_one_time_admin().await;
    let client = fleet.client();
    let verified = client.verify_audit(Some(head)).await.expect("verified");
    assert_eq!(verified.result, "intact", "seals of the revoked key stay valid: {verified:?}");
    let node = client.get_node("gpu-1").await.expect("shown");
    assert_eq!(
        (node.state.as_str(), node.connectivity.as_str()),
        ("enrolled", "unreachable"),
        "its identity is revoked"
    );
    let keys = client.list_signing_keys().await.expect("keys").items;
    let states: Vec<_> = keys.iter().map(|key| (key.id == signing_key, key.state.as_str())).collect();
    assert_eq!(states, [(true, "revoked"), (false, "active")]);
    let string = client.issue_enrollment("gpu-1", &EnrollNode::default()).await.expect("issued").enrollment.string;
    fleet.enroll_again(1, &string);
    eventually("the node does not reconnect", async || {
        let connected = client.list_nodes(Some("active".into()), Some("connected".into())).await;
        connected.is_ok_and(|list| list.items.len() == 1)
    })
    .await;
    enroll_again(&client).await;
    for node in [&copied, &later[0], &later[1]] {
        assert!(!node.is_accepted(&node.certificate).await, "an earlier identity is still accepted");
    }
    let refused = Node::enroll(&unused).await.err();
    assert_eq!(refused.as_deref(), Some("enrollment_invalid"), "an earlier enrollment string is refused");
    let ping = client.ping_node("gpu-1").await.expect("the node executes tasks");
    assert_eq!(ping.task.state, "succeeded");
    assert_eq!(client.list_artifacts().await.expect("listed").items.len(), artifacts.len());
    let audit = client.list_audit(&AuditQuery::default()).await.expect("listed").items;
    let actions: Vec<&str> = audit.iter().map(|record| record.action.as_str()).collect();
    assert!(actions.contains(&"server.credentials_end"), "{actions:?}");
    assert!(actions.contains(&"server.restore") && actions.contains(&"artifact.import"), "{actions:?}");
}

#[test]
fn directory_without_a_control_plane_is_refused_and_stays_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("wrong");
    std::fs::create_dir(&data_dir).expect("created");
    let backup = folder.path().join("b.tar");
    let backup = backup.to_str().expect("a text");
    for verb in [&["server", "backup", backup][..], &["server", "recover-admin"]] {
        let mut command = std::process::Command::new(GPUAAS);
        let output = command.args(verb).arg("--data-dir").arg(&data_dir).output().expect("gpuaas runs");
        assert_refused(&output, "store_missing");
    }
    assert_eq!(std::fs::read_dir(&data_dir).expect("a folder").count(), 0, "nothing is created");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "there is no backup");
}
