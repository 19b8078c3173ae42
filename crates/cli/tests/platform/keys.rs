//! Rotation of task-signing keys and certificate authorities while nodes work.

use gpuaas_api_types::{EnrollNode, ForceAuthority, RegisterNode};
use gpuaas_client::{AuditQuery, Client, ClientError};
use gpuaas_postgres_server::Server;
use tokio_util::sync::CancellationToken;

use crate::{
    fleet::Fleet,
    hostile_nodes::Node,
    world::{Platform, eventually},
};

/// Pings a node until `stop` is cancelled. Every ping must succeed. Returns their number.
async fn ping_until(client: Client, node: &'static str, stop: CancellationToken) -> usize {
    let mut answered = 0;
    while !stop.is_cancelled() {
        let ping = client.ping_node(node).await.expect("an answer");
        assert_eq!(ping.task.state, "succeeded", "{:?}", ping.task);
        answered += 1;
    }
    answered
}

async fn states(client: &Client) -> Vec<String> {
    client.list_signing_keys().await.expect("keys").items.into_iter().map(|key| key.state).collect()
}

/// Rotates the signing keys and waits until the rotation has settled.
async fn rotate(client: &Client) {
    client.rotate_signing_keys().await.expect("accepted");
    await_settled(client).await;
}

async fn await_settled(client: &Client) {
    eventually("the rotation does not end", async || {
        states(client).await.iter().all(|state| state == "active" || state == "retired")
    })
    .await;
}

fn code(error: ClientError) -> String {
    match error {
        ClientError::Problem(problem) => problem.code,
        other => other.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_rotation_under_load_refuses_no_task() {
    let fleet = Fleet::start(2).await;
    let client = fleet.client();
    let stop = CancellationToken::new();
    let pings = ["gpu-1", "gpu-2"].map(|node| tokio::spawn(ping_until(fleet.client(), node, stop.clone())));
    for _ in 0..3 {
        rotate(&client).await;
    }
    stop.cancel();
    for ping in pings {
        assert!(ping.await.expect("every ping succeeded") > 0);
    }
    assert_eq!(states(&client).await, ["retired", "retired", "retired", "active"]);
    let audit = client.list_audit(&AuditQuery::default()).await.expect("records").items;
    let of_keys: Vec<&str> =
        audit.iter().map(|record| record.action.as_str()).filter(|action| action.starts_with("key")).collect();
    let (first, later) = of_keys.split_first().expect("records");
    assert_eq!(*first, "key.activate", "the first key's activation is recorded");
    assert_eq!(later, ["keys.rotate", "key.supersede", "key.activate", "key.retire"].repeat(3));
    let made = audit.iter().find(|record| record.action == "token.create").expect("the first token is recorded");
    assert_eq!((made.actor.as_str(), &made.metadata["role"]), ("control-plane", &"platform-admin".into()));
    let signed_by: std::collections::BTreeSet<&str> = audit
        .iter()
        .filter(|record| record.action == "task.dispatch")
        .filter_map(|record| record.metadata["key"].as_str())
        .collect();
    assert!(signed_by.len() > 1, "several keys signed: {signed_by:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_disconnected_during_a_key_rotation_works_after_reconnecting() {
    let mut fleet = Fleet::start(2).await;
    let client = fleet.client();
    // The key that signed an open task stays in grace until the task ends; on a disconnected node that is at the task's deadline.
    eventually("the inspection does not end", async || {
        let tasks = client.list_tasks(Some("gpu-1".into()), None).await.expect("tasks").items;
        tasks.iter().any(|task| task.state == "succeeded")
    })
    .await;
    fleet.kill_init(1);
    rotate(&client).await;
    rotate(&client).await;
    fleet.start_init(1);
    eventually("the node does not answer", async || {
        client.ping_node("gpu-1").await.is_ok_and(|ping| ping.task.state == "succeeded")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_key_waits_for_nodes_and_names_them() {
    let fleet = Fleet::start(2).await;
    let client = fleet.client();
    fleet.signal_agent(1, "STOP");
    let made = client.rotate_signing_keys().await.expect("accepted");
    let again = client.rotate_signing_keys().await.map_err(code).expect_err("one at a time");
    assert_eq!(again, "state_conflict");
    eventually("the key does not name the node that it waits for", async || {
        let keys = client.list_signing_keys().await.expect("keys").items;
        let key = keys.iter().find(|key| key.id == made.id).expect("the new key");
        assert_eq!(key.state, "staged", "the stopped node cannot have taken the key");
        key.waiting_for.as_deref() == Some("nodes to accept the new key: gpu-1")
    })
    .await;
    fleet.signal_agent(1, "CONT");
    await_settled(&client).await;
    assert_eq!(client.ping_node("gpu-1").await.expect("an answer").task.state, "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_rotation_reaches_nodes_of_every_replica_and_survives_the_death_of_one() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    let mut fleet = Fleet::start_on(2, 2, Some(url)).await;
    let survivor = fleet.client_of(0);
    let stop = CancellationToken::new();
    let pings = [(0, "gpu-1"), (1, "gpu-2")]
        .map(|(replica, node)| tokio::spawn(ping_until(fleet.client_of(replica), node, stop.clone())));
    rotate(&fleet.client_of(1)).await;
    stop.cancel();
    for ping in pings {
        assert!(ping.await.expect("every ping succeeded") > 0);
    }
    fleet.signal_agent(1, "STOP");
    fleet.client_of(1).rotate_signing_keys().await.expect("accepted");
    fleet.kill_replica(1);
    fleet.signal_agent(1, "CONT");
    await_settled(&survivor).await;
    assert_eq!(states(&survivor).await, ["retired", "retired", "active"]);
    assert_eq!(survivor.ping_node("gpu-2").await.expect("an answer").task.state, "succeeded");
}

async fn authorities(client: &Client) -> Vec<String> {
    client.list_authorities().await.expect("authorities").items.into_iter().map(|authority| authority.state).collect()
}

/// Returns the reason for which the rotation of authorities waits.
async fn waiting_reason(client: &Client) -> Option<String> {
    let listed = client.list_authorities().await.expect("authorities").items;
    listed.into_iter().find_map(|authority| authority.waiting_for)
}

/// Returns the connection of each node, ordered by node id.
fn connections(fleet: &Fleet) -> Vec<String> {
    let store = rusqlite::Connection::open(fleet.data_dir().join("gpuaas.db")).expect("the store");
    let mut read = store.prepare("select connection from sessions order by node_id").expect("a statement");
    let rows = read.query_map([], |row| row.get(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("read")
}

/// Returns the identity file of a node's agent.
fn identity(fleet: &Fleet, node: u8) -> serde_json::Value {
    let kept = std::fs::read(fleet.node_file(node, "var/lib/gpuaas-agent/identity.json")).expect("enrolled");
    serde_json::from_slice(&kept).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_rotation_under_load_ends_no_connection() {
    let fleet = Fleet::start(2).await;
    let client = fleet.client();
    // A node that never renews its certificate by itself.
    let silent = Node::enrolled(&client, "gpu-3").await;
    let before = connections(&fleet);
    assert_eq!(before.len(), 2);
    let stop = CancellationToken::new();
    let pings = ["gpu-1", "gpu-2"].map(|node| tokio::spawn(ping_until(fleet.client(), node, stop.clone())));
    // Meanwhile `ca.pem` cannot be written.
    let ca_file = fleet.data_dir().join("ca.pem");
    std::fs::remove_file(&ca_file).expect("it was written at start");
    std::fs::create_dir(&ca_file).expect("made");
    let made = client.rotate_authority().await.expect("accepted");
    eventually("the nodes do not renew", async || {
        waiting_reason(&client).await.as_deref() == Some("nodes to renew their certificates: gpu-3")
    })
    .await;
    assert_eq!(authorities(&client).await, ["grace", "active"]);
    assert!(silent.is_accepted(&silent.certificate).await, "the old authority is refused before its last renewal");
    let late = Node::enrolled(&client, "gpu-4").await;
    let old = client.list_authorities().await.expect("authorities").items.remove(0);
    let ask = ForceAuthority { authority: old.id, state: "grace".into(), reason: "a test retires it".into() };
    let forced = client.force_authority(&ask).await.expect("forced");
    assert_eq!(forced.state, "retired");
    let again = client.force_authority(&ask).await.map_err(code).expect_err("it is not in grace");
    assert_eq!(again, "state_conflict");
    client.issue_enrollment("gpu-3", &EnrollNode::default()).await.expect("a node left behind can enroll again");
    eventually("the old authority is still accepted", async || !silent.is_accepted(&silent.certificate).await).await;
    assert!(late.is_accepted(&late.certificate).await, "a certificate of the new authority is refused");
    for node in [1, 2] {
        eventually("the node trusts the old authority", async || {
            identity(&fleet, node)["authority"] == made.certificate
        })
        .await;
        let of = |pem: &str| gpuaas_trust::certificates_of_pem(pem).expect("PEM").remove(0);
        let certificate = of(identity(&fleet, node)["certificate"].as_str().expect("a text"));
        assert!(gpuaas_trust::names_issuer(&certificate, &of(&made.certificate)));
    }
    stop.cancel();
    for ping in pings {
        assert!(ping.await.expect("every ping succeeded") > 0);
    }
    assert_eq!(connections(&fleet), before, "a connection ended");
    std::fs::remove_dir(&ca_file).expect("removed");
    eventually("ca.pem still holds the old authority", async || {
        std::fs::read_to_string(&ca_file).is_ok_and(|pem| pem == made.certificate)
    })
    .await;
    // The client trusts only the old authority, which vouches for the new one.
    assert_eq!(authorities(&fleet.client()).await, ["retired", "active"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_disconnected_during_an_authority_rotation_works_after_reconnecting() {
    let mut fleet = Fleet::start(2).await;
    let client = fleet.client();
    fleet.kill_init(1);
    eventually("the node is still connected", async || connections(&fleet).len() == 1).await;
    client.rotate_authority().await.expect("accepted");
    eventually("the rotation does not wait for the node", async || {
        waiting_reason(&client).await.as_deref() == Some("nodes to renew their certificates: gpu-1")
    })
    .await;
    fleet.start_init(1);
    eventually("the old authority is not retired", async || authorities(&client).await == ["retired", "active"]).await;
    assert_eq!(client.ping_node("gpu-1").await.expect("an answer").task.state, "succeeded");
    // The node also works after the control plane or the agent restarts.
    fleet.kill_server();
    fleet.start_server();
    eventually("the nodes do not reconnect", async || {
        client.ping_node("gpu-1").await.is_ok_and(|ping| ping.task.state == "succeeded")
    })
    .await;
    fleet.kill_agent(1);
    eventually("the agent does not reconnect", async || {
        client.ping_node("gpu-1").await.is_ok_and(|ping| ping.task.state == "succeeded")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_revoked_by_the_command_line_signs_no_further_task() {
    let dev = Platform::start(1);
    let first = dev.json(&["keys", "list"])[0]["id"].as_str().expect("an id").to_owned();
    let ended = dev.json(&["keys", "revoke", &first, "--yes"]);
    assert_eq!((ended["id"].as_str(), ended["state"].as_str()), (Some(first.as_str()), Some("revoked")));
    let ping = dev.client().ping_node("demo-1").await.expect("an answer");
    assert!(ping.task.state == "succeeded" && ping.task.key_id != first, "{:?}", ping.task);
    assert_eq!(states(&dev.client()).await, ["revoked", "active"]);
    assert_eq!(dev.gpuaas(&["keys", "revoke", "nobody", "--yes"]).status.code(), Some(3));
    assert_eq!(dev.client().revoke_signing_key("nobody").await.expect_err("no such key").exit() as u8, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_that_does_not_end_in_time_names_what_it_waits_for_and_a_retired_node_is_not_waited_for() {
    let platform = Platform::start(0);
    let client = platform.client();
    let ask = RegisterNode { name: "gpu-9".into(), ..RegisterNode::default() };
    client.register_node(&ask).await.expect("registered, with an enrollment string");
    let stopped = platform.gpuaas(&["keys", "rotate", "authority", "--wait", "--timeout", "3s"]);
    let printed = String::from_utf8(stopped.stderr).expect("text");
    assert_eq!(stopped.status.code(), Some(8), "{printed}");
    for part in [
        "waiting for enrollment strings to be used or to expire: gpu-9\n",
        "error: stopped waiting for enrollment strings to be used or to expire: gpu-9 after 3.0 s (--timeout)",
        "see it: gpuaas keys list authority",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    client.retire_node("gpu-9").await.expect("retired");
    eventually("the rotation waits for a retired node", async || {
        authorities(&client).await.iter().all(|state| state == "active" || state == "retired")
    })
    .await;
}
