//! A process dies in the middle of a deployment: after its restart the deployment goes on, and no completed effect is repeated.

use futures::StreamExt;
use gpuaas_api_types::{CreateAllocation, CreateProject, Deploy};
use gpuaas_client::Client;
use gpuaas_postgres_server::Server;
use serde_json::{Value, json};

use crate::{
    fleet::Fleet,
    world::{CLUSTERS, eventually, import_of, release},
};

const PROJECT: &str = "research";

/// Prepares a project with both nodes and a release, and returns a deployment request.
pub(crate) async fn prepared(client: &Client) -> Deploy {
    client.import_artifacts(&import_of(release())).await.expect("imported");
    client.create_project(&CreateProject { name: PROJECT.into() }).await.expect("made");
    for node in ["gpu-1", "gpu-2"] {
        let ask = CreateAllocation { project: PROJECT.into(), node: node.into() };
        client.create_allocation(&ask).await.expect("made");
    }
    let mut ids = Vec::new();
    eventually("the allocations do not become active", async || {
        let list = client.list_allocations(None, None).await.expect("listed").items;
        ids = list.iter().map(|allocation| allocation.id.clone()).collect();
        list.iter().all(|allocation| allocation.state == "active")
    })
    .await;
    let placement = json!({ "server_allocation_id": ids[0], "agent_allocation_ids": [ids[1]] });
    Deploy {
        project: Some(PROJECT.into()),
        app: "rke2".into(),
        version: None,
        name: "train".into(),
        placement,
        config: Value::Null,
    }
}

/// Returns when the step is no longer pending. Fails if the operation ends before.
pub(crate) async fn until_running(client: &Client, operation: &str, step: &str) {
    let mut events = Box::pin(client.follow_events(Some(PROJECT.into()), 0).await.expect("a stream"));
    loop {
        let detail = client.get_operation(operation).await.expect("an operation");
        assert!(detail.operation.ended_at.is_none(), "it ended before {step} ran: {:?}", detail.operation.fault);
        if detail.steps.iter().any(|of| of.key == step && of.state != "pending") {
            return;
        }
        events.next().await.expect("a stream without end").expect("an event");
    }
}

pub(crate) async fn ends_well(client: &Client, operation: &str) {
    eventually("the operation does not end", async || {
        client.get_operation(operation).await.is_ok_and(|of| of.operation.ended_at.is_some())
    })
    .await;
    let ended = client.get_operation(operation).await.expect("an operation").operation;
    assert_eq!(ended.state, "succeeded", "{:?}", ended.fault);
    let workload = client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload").workload;
    assert_eq!((workload.lifecycle.as_str(), workload.health.as_str()), ("running", "healthy"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_is_killed_again_and_again_goes_on_where_it_was() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    killed_again_and_again(Fleet::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_on_postgresql_does_so_too() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    killed_again_and_again(Fleet::start_on(2, 1, Some(url)).await).await;
}

async fn killed_again_and_again(mut fleet: Fleet) {
    let client = fleet.client();
    let deploy = prepared(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    for step in ["server-1/install", "server-1/start", "server-1/wait-ready", "agent-1/start"] {
        until_running(&client, &operation, step).await;
        fleet.kill_server();
        fleet.start_server();
    }
    ends_well(&client, &operation).await;
    assert_eq!((fleet.counted(1, "start"), fleet.counted(2, "start")), (1, 1), "each was started once");
    let tasks = client.list_tasks(None, Some(operation)).await.expect("tasks").items;
    assert!(tasks.iter().all(|task| task.state == "succeeded"), "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_in_a_task_reports_it_interrupted_and_the_step_looks_before_it_repeats() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(2).await;
    let client = fleet.client();
    let deploy = prepared(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    until_running(&client, &operation, "server-1/start").await;
    eventually("the server does not start", async || fleet.counted(1, "start") == 1).await;
    fleet.kill_agent(1);
    ends_well(&client, &operation).await;
    assert_eq!(fleet.counted(1, "start"), 1, "a unit on its way is waited for, not started again");
    let tasks = client.list_tasks(None, Some(operation)).await.expect("tasks").items;
    let starts: Vec<&str> =
        tasks.iter().filter(|task| task.task_type == "rke2.start").map(|task| task.state.as_str()).collect();
    assert!(starts.contains(&"interrupted"), "{starts:?}");
}
