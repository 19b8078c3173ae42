//! Rotation of the sealing key while nodes work and clients send requests.

use gpuaas_api_types::{CreateProject, CreateServiceAccount, RegisterNode};
use gpuaas_client::{AuditQuery, Client, ClientError};
use gpuaas_postgres_server::Server;
use gpuaas_trust::SealingKey;
use sqlx::{Connection, PgConnection, Row};
use tokio_util::sync::CancellationToken;

use crate::{fleet::Fleet, world::eventually};

/// Pings a node and lists tokens until `stop` is cancelled. Every request must succeed. Returns the number of rounds.
async fn work_until(client: Client, node: &'static str, stop: CancellationToken) -> usize {
    let mut answered = 0;
    while !stop.is_cancelled() {
        let ping = client.ping_node(node).await.expect("an answer");
        assert_eq!(ping.task.state, "succeeded", "{:?}", ping.task);
        client.list_tokens(None).await.expect("an answer");
        answered += 1;
    }
    answered
}

fn code(error: ClientError) -> String {
    match error {
        ClientError::Problem(problem) => problem.code,
        other => other.to_string(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..hex.len()).step_by(2).map(|at| digits(at).expect("hex digits")).collect()
}

/// Counts the sealed values and key-derived codes in the database that `key` opens or verifies.
async fn opened_by(url: &str, key: &SealingKey) -> usize {
    let mut store = PgConnection::connect(url).await.expect("the store");
    let mut opened = 0;
    for sql in [
        "select name as owner, value as sealed from settings",
        "select id as owner, sealed from secrets",
        "select 'task-signing.key/' || key_id as owner, seed as sealed from signing_keys",
        "select 'authority.key/' || id as owner, sealed_key as sealed from authorities",
    ] {
        for row in sqlx::query(sql).fetch_all(&mut store).await.expect("rows") {
            let (owner, sealed): (String, Vec<u8>) = (row.get("owner"), row.get("sealed"));
            opened += usize::from(key.open(owner.as_bytes(), &sealed).is_ok());
        }
    }
    for (table, sql) in [
        ("tokens", "select doc, code, ''::bytea as more from tokens"),
        ("enrollments", "select doc, code, ''::bytea as more from enrollments"),
        ("service_accounts", "select doc, code, ''::bytea as more from service_accounts"),
        ("signing_keys", "select doc, code, seed as more from signing_keys"),
        ("authorities", "select doc, code, sealed_key as more from authorities"),
    ] {
        for row in sqlx::query(sql).fetch_all(&mut store).await.expect("rows") {
            let (doc, code, more): (String, String, Vec<u8>) = (row.get("doc"), row.get("code"), row.get("more"));
            let code = bytes(&code);
            opened += usize::from(key.records().is_valid_code(table, &[doc.as_bytes(), &more], &code));
        }
    }
    store.close().await.expect("closed");
    opened
}

/// Returns the connection that carries each node's channel.
async fn connections(url: &str) -> Vec<(String, String)> {
    let mut store = PgConnection::connect(url).await.expect("the store");
    let rows = sqlx::query("select node_id, connection from sessions order by node_id").fetch_all(&mut store).await;
    let rows = rows.expect("rows").iter().map(|row| (row.get("node_id"), row.get("connection"))).collect();
    store.close().await.expect("closed");
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn sealing_key_rotation_under_load_interrupts_no_node_and_no_client() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    let mut fleet = Fleet::start_on(2, 2, Some(url.clone())).await;
    let (first, second) = (fleet.client_of(0), fleet.client_of(1));
    let old = SealingKey::new(&std::fs::read(fleet.path("sealing.key")).expect("a key")).expect("a key");
    first.create_project(&CreateProject { name: "lab".into() }).await.expect("a project");
    let account =
        CreateServiceAccount { name: "ci".into(), role: "viewer".into(), workload: None, project: Some("lab".into()) };
    first.create_service_account(&account).await.expect("an account");
    let under_old = opened_by(&url, &old).await;
    assert!(under_old >= 7, "{under_old}");
    let before = connections(&url).await;
    assert_eq!(before.len(), 2);

    let refused = first.rotate_sealing_key().await.map_err(code).expect_err("there is no next key");
    assert_eq!(refused, "sealing_key_not_on_all_replicas");
    let made = fleet.server_verb(&["next-sealing-key"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let new = SealingKey::new(&std::fs::read(fleet.path("sealing.key.next")).expect("a key")).expect("a key");
    assert!(!fleet.server_verb(&["next-sealing-key"]).status.success(), "an existing next key was overwritten");
    fleet.signal_replica(0, "HUP");
    eventually("the first replica does not load the next key", async || {
        first.get_sealing_key().await.expect("a key").next.as_deref() == Some(new.id())
    })
    .await;
    let refused = first.rotate_sealing_key().await.map_err(code).expect_err("the other replica lacks it");
    assert_eq!(refused, "sealing_key_not_on_all_replicas");
    fleet.signal_replica(1, "HUP");
    eventually("the key does not report that every replica has the next one", async || {
        let waiting_for = first.get_sealing_key().await.expect("a key").waiting_for.unwrap_or_default();
        waiting_for.contains("gpuaas keys rotate sealing")
    })
    .await;

    let stop = CancellationToken::new();
    let work = [(0, "gpu-1"), (1, "gpu-2")]
        .map(|(replica, node)| tokio::spawn(work_until(fleet.client_of(replica), node, stop.clone())));
    let begun = second.rotate_sealing_key().await.expect("begun");
    assert_eq!((begun.id.as_str(), begun.state.as_str()), (new.id(), "rotating"));
    eventually("the rotation does not end", async || {
        let key = first.get_sealing_key().await.expect("a key");
        key.state == "settled" && key.waiting_for.is_none()
    })
    .await;
    let ask = RegisterNode { name: "gpu-3".into(), ..RegisterNode::default() };
    first.register_node(&ask).await.expect("an enrollment, coded under the new key");
    stop.cancel();
    for work in work {
        assert!(work.await.expect("nothing failed") > 0);
    }
    assert_eq!(connections(&url).await, before, "a node was disconnected");
    assert_eq!(opened_by(&url, &old).await, 0, "the old key still opens values");
    assert!(opened_by(&url, &new).await >= under_old);
    eventually("the next key's file is not moved into place", async || !fleet.path("sealing.key.next").exists()).await;
    let kept = SealingKey::new(&std::fs::read(fleet.path("sealing.key")).expect("a key")).expect("a key");
    assert_eq!(kept.id(), new.id());
    let audit = first.list_audit(&AuditQuery::default()).await.expect("records").items;
    for (action, times) in [("sealing_key.take", 2), ("sealing_key.rotate", 1), ("sealing_key.finish", 1)] {
        assert_eq!(
            audit.iter().filter(|record| record.action == action && record.result == "accepted").count(),
            times,
            "{action}"
        );
    }
    let forged = first.list_events(None, 0).await.expect("events").items;
    assert!(forged.iter().all(|event| event.kind != "row.forged"), "{forged:?}");

    for replica in [0, 1] {
        fleet.kill_replica(replica);
    }
    fleet.start_server();
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    eventually("the node does not answer", async || {
        fleet.client().ping_node("gpu-1").await.is_ok_and(|ping| ping.task.state == "succeeded")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_sealing_key_is_loaded_at_start_and_backed_up() {
    let mut fleet = Fleet::start(0).await;
    assert!(fleet.server_verb(&["next-sealing-key"]).status.success());
    fleet.kill_server();
    fleet.start_server();
    let client = fleet.client();
    let before = client.get_sealing_key().await.expect("a key");
    assert_eq!(before.state, "next_taken");
    let file = fleet.path("backup.tar").to_string_lossy().into_owned();
    assert!(fleet.server_verb(&["backup", &file]).status.success());
    let after = client.rotate_sealing_key().await.expect("begun");
    assert_eq!(after.previous.as_ref(), Some(&before.id));
    assert!(fleet.server_verb(&["recover-admin"]).status.success());
    eventually("the rotation does not end", async || {
        client.get_sealing_key().await.expect("a key").state == "settled"
            && !fleet.data_dir().join("sealing-next.key").exists()
    })
    .await;
    fleet.kill_server();
    std::fs::rename(fleet.data_dir(), fleet.path("lost")).expect("moved");
    let restored = fleet.server_verb(&["restore", &file]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    fleet.start_server();
    fleet.exchange_one_time_admin().await;
    let restored = fleet.client().get_sealing_key().await.expect("a key");
    assert_eq!((restored.id, restored.next, restored.state.as_str()), (before.id, before.next, "next_taken"));
}
