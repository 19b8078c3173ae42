//! Two control planes on one PostgreSQL: each reaches nodes whose channel the other holds, and each continues when the other dies.

use futures::StreamExt;
use gpuaas_api_types::RegisterNode;
use gpuaas_client::{Client, LogOptions};
use gpuaas_postgres_server::Server;

use crate::{
    fleet::Fleet,
    restarts::{assert_succeeds, prepare_deployment, until_running},
    world::{CLUSTERS, eventually, token_request},
};

/// The first replica holds the nodes' channels, the second drives the operation.
const HOLDS_CHANNELS: usize = 0;
const HOLDS_OPERATION: usize = 1;

/// Starts two replicas; the nodes are connected to the first and know both.
async fn replicated() -> (Server, Fleet) {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    let fleet = Fleet::start_on(2, 2, Some(url)).await;
    eventually("the nodes do not receive the second replica's endpoint", async || {
        [1, 2].into_iter().all(|node| fleet.endpoints_of(node).len() == 2)
    })
    .await;
    (server, fleet)
}

/// Starts a deployment that the second replica drives, and waits until `step` runs.
async fn deploying(fleet: &Fleet, step: &str) -> (Client, String) {
    let client = fleet.client_of(HOLDS_OPERATION);
    let deploy = prepare_deployment(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    until_running(&client, &operation, step).await;
    let replicas = client.list_replicas().await.expect("listed").items;
    let held: Vec<(u64, u64)> = replicas.iter().map(|replica| (replica.nodes, replica.operations)).collect();
    assert_eq!(held, [(2, 0), (0, 1)], "channels on the first, the operation on the second");
    (client, operation)
}

fn assert_nothing_repeated(fleet: &Fleet) {
    assert_eq!(
        (fleet.count_events(1, "start"), fleet.count_events(2, "start")),
        (1, 1),
        "each service is started once"
    );
}

/// Asserts that both replicas issue the same key pin in the command that enrolls a machine.
async fn assert_one_pin(fleet: &Fleet) {
    let mut pins = Vec::new();
    for replica in [HOLDS_CHANNELS, HOLDS_OPERATION] {
        let ask = RegisterNode { name: format!("spare-{replica}"), ..RegisterNode::default() };
        let line = fleet.client_of(replica).register_node(&ask).await.expect("registered").enrollment.command;
        pins.push(line.split('\'').nth(1).expect("a pin").to_owned());
    }
    assert_eq!(pins[0], pins[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_of_one_replica_reaches_nodes_through_another() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let (_server, fleet) = replicated().await;
    assert_one_pin(&fleet).await;
    let (client, operation) = deploying(&fleet, "server-1/start").await;
    assert_succeeds(&client, &operation).await;
    assert_nothing_repeated(&fleet);
    let tasks = client.list_tasks(None, Some(operation)).await.expect("tasks").items;
    assert!(tasks.iter().all(|task| task.state == "succeeded"), "{tasks:?}");
    let pinged = client.ping_node("gpu-1").await.expect("a node that another replica holds answers");
    assert_eq!(pinged.task.state, "succeeded");
    let ask = LogOptions { tail: Some(5), ..LogOptions::default() };
    let lines = client.read_logs(Some("research".into()), "train", "server-1", &ask).await.expect("logs");
    assert_eq!(lines.count().await, 5, "a journal comes through the replica that holds the node");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_under_one_key_at_two_replicas_are_done_once() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let fleet = Fleet::start_on(0, 2, Some(server.fresh_database().await)).await;
    let clients = [0, 1].map(|number| fleet.client_of(number).with_idempotency_key("k-1"));
    let ask = token_request("robot", "platform-admin", None);
    let (one, other) = tokio::join!(clients[0].create_token(&ask), clients[1].create_token(&ask));
    let made: Vec<_> = [one, other].into_iter().flatten().map(|made| made.token.id).collect();
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]) && !made.is_empty(), "{made:?}");
    let again = clients[1].create_token(&ask).await.expect("answered again");
    assert_eq!(again.token.id, made[0]);
    let tokens = fleet.client().list_tokens(None).await.expect("listed").items;
    assert_eq!(tokens.iter().filter(|token| token.name == "robot").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_outlives_the_replica_that_holds_the_channels() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let (_server, mut fleet) = replicated().await;
    let (client, operation) = deploying(&fleet, "server-1/start").await;
    fleet.kill_replica(HOLDS_CHANNELS);
    assert_succeeds(&client, &operation).await;
    assert_nothing_repeated(&fleet);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_outlives_the_replica_that_drives_it() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let (_server, mut fleet) = replicated().await;
    let (_, operation) = deploying(&fleet, "server-1/start").await;
    fleet.kill_replica(HOLDS_OPERATION);
    let survivor = fleet.client_of(HOLDS_CHANNELS);
    assert_succeeds(&survivor, &operation).await;
    assert_nothing_repeated(&fleet);
    let replicas = survivor.list_replicas().await.expect("listed").items;
    assert_eq!(replicas.len(), 1, "the dead replica is still listed: {replicas:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_replica_writes_nothing_after_its_lease_and_rejoins() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let (_server, fleet) = replicated().await;
    let (_, operation) = deploying(&fleet, "server-1/start").await;
    fleet.signal_replica(HOLDS_OPERATION, "STOP");
    let survivor = fleet.client_of(HOLDS_CHANNELS);
    assert_succeeds(&survivor, &operation).await;
    fleet.signal_replica(HOLDS_OPERATION, "CONT");
    let client = fleet.client_of(HOLDS_OPERATION);
    eventually("the replica does not rejoin", async || {
        client.list_replicas().await.is_ok_and(|replicas| replicas.items.len() == 2)
    })
    .await;
    assert_nothing_repeated(&fleet);
    let after = client.get_operation(&operation).await.expect("an operation").operation;
    assert_eq!(after.state, "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_replica_hands_its_work_over_at_once() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let (_server, mut fleet) = replicated().await;
    let (_, operation) = deploying(&fleet, "server-1/start").await;
    fleet.signal_replica(HOLDS_OPERATION, "TERM");
    fleet.await_replica_exit(HOLDS_OPERATION);
    let survivor = fleet.client_of(HOLDS_CHANNELS);
    let replicas = survivor.list_replicas().await.expect("listed").items;
    assert_eq!(replicas.len(), 1, "{replicas:?}");
    eventually("no replica takes over the operation", async || {
        survivor.list_replicas().await.is_ok_and(|replicas| replicas.items[0].operations == 1)
    })
    .await;
    assert_succeeds(&survivor, &operation).await;
    assert_nothing_repeated(&fleet);
}
