//! How a control plane gets its first administrator, and what prevents a second one by accident.

use std::path::Path;

use gpuaas_api_types::Bootstrap;
use gpuaas_client::{AuditQuery, Client, ClientError};
use gpuaas_postgres_server::Server;

use crate::{
    fleet::Fleet,
    operations::operations,
    raw::send,
    world::{GPUAAS, Platform, eventually, until},
};

/// Reads the one-time token in a data directory.
pub(crate) fn one_time_admin(data_dir: &Path) -> String {
    std::fs::read_to_string(data_dir.join("admin.token")).expect("a one-time token").trim().to_owned()
}

/// Exchanges the client's one-time token; returns the admin's token.
pub(crate) async fn exchange_token(client: &Client) -> Result<String, ClientError> {
    let ask = Bootstrap { name: "ann".to_owned(), ttl_seconds: None };
    client.bootstrap(&ask).await.map(|created| created.secret)
}

fn code<T: std::fmt::Debug>(refused: Result<T, ClientError>) -> String {
    refused.expect_err("a refusal").code().to_string()
}

/// Runs `recover-admin` on the platform's machine and returns the new one-time token.
fn recover_admin(platform: &Platform) -> String {
    let data_dir = platform.file("data/server");
    let made = platform.json(&["server", "recover-admin", "--data-dir", &data_dir.to_string_lossy()]);
    assert_eq!(made["url"], platform.ready()["url"], "where to exchange it");
    one_time_admin(&data_dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn later_starts_create_no_one_time_token() {
    let mut fleet = Fleet::start(0).await;
    let file = fleet.data_dir().join("admin.token");
    until("the file of an exchanged token remains", || !file.exists());
    let (client, store) = (fleet.client(), fleet.data_dir().join("gpuaas.db"));
    let tokens = client.list_tokens(None).await.expect("listed").items;
    assert_eq!(tokens.iter().filter(|token| token.revoked_at.is_some()).count(), 1, "{tokens:?}");

    let own = tokens.iter().find(|token| token.revoked_at.is_none()).expect("the admin's");
    client.revoke_token(&own.id).await.expect("revoked");
    fleet.kill_server();
    fleet.start_server();
    assert!(!file.exists(), "a start after the last token was revoked created another");

    fleet.kill_server();
    let rows = rusqlite::Connection::open(&store).expect("the store");
    rows.execute("delete from tokens", []).expect("deleted");
    rows.close().expect("closed");
    fleet.start_server();
    assert!(!file.exists(), "a start without token rows created another");
    assert_eq!(code(client.whoami().await), "unauthenticated");

    let made = fleet.server_verb(&["recover-admin"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fleet.exchange_one_time_admin().await;
    assert_eq!(fleet.client().whoami().await.expect("the admin's token works").role, "platform-admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn unspent_one_time_token_outlives_a_restart() {
    let mut fleet = Fleet::start(0).await;
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    let one_time = one_time_admin(&fleet.data_dir());
    fleet.kill_server();
    fleet.start_server();
    assert_eq!(one_time_admin(&fleet.data_dir()), one_time);
    fleet.exchange_one_time_admin().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_time_token_permits_only_the_exchange() {
    let platform = Platform::start(0);
    let bearer = format!("Bearer {}", recover_admin(&platform));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let mut asked = 0;
    for operation in operations().iter().filter(|operation| operation.needs.is_some()) {
        for key in [None, Some(("idempotency-key", "k-1"))].into_iter().take(1 + usize::from(operation.mutates())) {
            let headers: Vec<_> = headers.into_iter().chain(key).collect();
            let body = if operation.mutates() { "{}" } else { "" };
            let path = operation.path_with_unused_ids();
            let answer = send(&platform, operation.method.clone(), &path, &headers, body).await;
            assert_eq!((answer.status, answer.code()), (403, "one_time_token_only"), "{}: {answer:?}", operation.name);
            let next = answer.body["next"].as_str().unwrap_or_default();
            assert!(next.contains("gpuaas bootstrap"), "{next}");
            asked += 1;
        }
    }
    assert!(asked > 40, "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_one_time_token_is_exchanged_and_only_once() {
    let platform = Platform::start(0);
    let one_time = recover_admin(&platform);
    let file = platform.file("copy");
    std::fs::write(&file, format!("{one_time}\n")).expect("written");
    let exchange = ["bootstrap", "--name", "ann", "--ttl", "12h", "--token-file", &file.to_string_lossy()];
    let created = platform.json(&exchange);
    let secret = created["secret"].as_str().expect("a secret");
    let who = platform.client_with(secret).whoami().await.expect("the token works");
    assert_eq!((who.name.as_str(), who.role.as_str()), ("ann", "platform-admin"));

    let again = platform.gpuaas(&exchange);
    let printed = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(4), "{printed}");
    assert!(printed.contains("one_time_token_used") && printed.contains("recover-admin"), "{printed}");
    assert_eq!(code(platform.client_with(&one_time).whoami().await), "unauthenticated");
    assert_eq!(code(exchange_token(&platform.client_with(secret)).await), "forbidden");
    assert_eq!(code(exchange_token(&platform.client_with("gpuaas_unknown")).await), "unauthenticated");

    let audit = platform.client().list_audit(&AuditQuery::default()).await.expect("listed").items;
    let exchanges: Vec<_> =
        audit.iter().filter(|record| record.action == "admin.bootstrap" && record.result == "accepted").collect();
    // One exchange by `gpuaas dev`, and this one.
    assert_eq!(exchanges.len(), 2, "{exchanges:?}");
    assert!(exchanges.iter().any(|record| record.metadata["name"] == "ann"), "{exchanges:?}");
    let made = format!("token/{}", created["token"]["id"].as_str().expect("an id"));
    assert!(audit.iter().any(|record| record.action == "token.create" && record.target == made));
    assert!(!serde_json::to_string(&audit).expect("JSON").contains(secret), "the audit holds no secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanged_token_is_saved_in_the_requested_context() {
    let platform = Platform::start(0);
    recover_admin(&platform);
    let file = platform.file("data/server/admin.token").to_string_lossy().into_owned();
    assert!(platform.gpuaas(&["context", "set", "first"]).status.success());
    // The control plane of the current context.
    let mut saved = std::process::Command::new(GPUAAS);
    saved.args(["bootstrap", "--name", "ann", "--token-file", &file, "--save", "lab"]);
    let saved = saved.env("XDG_CONFIG_HOME", &platform.folder).output().expect("gpuaas runs");
    let printed = String::from_utf8_lossy(&saved.stdout);
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    assert!(printed.starts_with("Context lab is saved in ") && printed.lines().count() == 1, "{printed}");
    let mut whoami = std::process::Command::new(GPUAAS);
    whoami.args(["whoami", "-o", "json", "--context", "lab"]).env("XDG_CONFIG_HOME", &platform.folder);
    let output = whoami.output().expect("gpuaas runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("ann"), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_exchanges_succeeds_across_replicas() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let fleet = Fleet::start_on(0, 2, Some(server.fresh_database().await)).await;
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    let one_time = one_time_admin(&fleet.data_dir());
    let clients = [0, 1].map(|replica| fleet.client_with(replica, &one_time));
    let (one, other) = tokio::join!(exchange_token(&clients[0]), exchange_token(&clients[1]));
    let (good, refused): (Vec<_>, Vec<_>) = [one, other].into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), refused.len()), (1, 1), "{good:?} {refused:?}");
    assert_eq!(refused.into_iter().map(code).collect::<Vec<_>>(), ["one_time_token_used"]);
    let file = fleet.data_dir().join("admin.token");
    eventually("the file of a token exchanged at another replica remains", async || !file.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_revokes_the_earlier_one_time_token_and_is_audited() {
    let fleet = Fleet::start(0).await;
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    let before = one_time_admin(&fleet.data_dir());
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    assert_ne!(one_time_admin(&fleet.data_dir()), before);
    assert_eq!(code(exchange_token(&fleet.client_with(0, &before)).await), "one_time_token_used");

    let audit = fleet.client().list_audit(&AuditQuery::default()).await.expect("listed").items;
    let recoveries: Vec<_> = audit.iter().filter(|record| record.action == "admin.recover").collect();
    assert_eq!(recoveries.len(), 2, "{recoveries:?}");
    assert_eq!(
        (recoveries[0].actor.as_str(), recoveries[0].actor_type.as_str()),
        ("control-plane/local", "control_plane")
    );
    let whoami = std::process::Command::new("id").arg("-un").output().expect("id runs");
    assert_eq!(recoveries[0].metadata["os_user"], String::from_utf8_lossy(&whoami.stdout).trim());
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_needs_the_data_directory_with_its_sealing_key() {
    let fleet = Fleet::start(0).await;
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    let (kept, key) = (one_time_admin(&fleet.data_dir()), fleet.data_dir().join("sealing.key"));
    std::fs::rename(&key, fleet.path("moved")).expect("moved");
    for foreign in [None, Some([9; 32])] {
        if let Some(foreign) = foreign {
            std::fs::write(&key, foreign).expect("written");
        }
        let refused = fleet.server_verb(&["recover-admin"]);
        let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && (printed.contains("sealing key") || printed.contains("authority.key")),
            "{printed}"
        );
    }
    assert_eq!(one_time_admin(&fleet.data_dir()), kept, "nothing was made");
    let elsewhere = fleet.path("elsewhere").to_string_lossy().into_owned();
    assert!(!fleet.server_verb(&["recover-admin", "--data-dir", &elsewhere]).status.success());
    assert!(!fleet.path("elsewhere").exists(), "a wrong folder became a new control plane");
}
