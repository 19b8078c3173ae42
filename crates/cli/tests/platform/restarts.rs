//! A process dies in the middle of a deployment: after its restart the deployment continues, and no completed effect is repeated.

use futures::StreamExt;
use gpuaas_api_types::{CreateAllocation, CreateProject, Deploy};
use gpuaas_client::Client;
use gpuaas_postgres_server::Server;
use serde_json::{Value, json};

use crate::{
    fleet::Fleet,
    world::{CLUSTERS, eventually, import_request, release},
};

const PROJECT: &str = "research";

/// Prepares a project with both nodes and a release, and returns a deployment request.
pub(crate) async fn prepare_deployment(client: &Client) -> Deploy {
    client.import_artifacts(&import_request(release())).await.expect("imported");
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
        events.next().await.expect("an endless stream").expect("an event");
    }
}

pub(crate) async fn assert_succeeds(client: &Client, operation: &str) {
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
async fn repeatedly_killed_control_plane_completes_the_deployment() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    kill_repeatedly(Fleet::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_killed_control_plane_on_postgresql_completes_the_deployment() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    kill_repeatedly(Fleet::start_on(2, 1, Some(url)).await).await;
}

async fn kill_repeatedly(mut fleet: Fleet) {
    let client = fleet.client();
    let deploy = prepare_deployment(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    for step in ["server-1/install", "server-1/start", "server-1/wait-ready", "agent-1/start"] {
        until_running(&client, &operation, step).await;
        fleet.kill_server();
        fleet.start_server();
    }
    assert_succeeds(&client, &operation).await;
    assert_eq!(
        (fleet.count_events(1, "start"), fleet.count_events(2, "start")),
        (1, 1),
        "each service is started once"
    );
    let tasks = client.list_tasks(None, Some(operation)).await.expect("tasks").items;
    assert!(tasks.iter().all(|task| task.state == "succeeded"), "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_agent_reports_its_task_interrupted_and_the_step_does_not_repeat_it() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(2).await;
    let client = fleet.client();
    let deploy = prepare_deployment(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    until_running(&client, &operation, "server-1/start").await;
    eventually("the server does not start", async || fleet.count_events(1, "start") == 1).await;
    fleet.kill_agent(1);
    assert_succeeds(&client, &operation).await;
    assert_eq!(fleet.count_events(1, "start"), 1, "a starting unit was started again");
    let tasks = client.list_tasks(None, Some(operation)).await.expect("tasks").items;
    let starts: Vec<&str> =
        tasks.iter().filter(|task| task.task_type == "rke2.start").map(|task| task.state.as_str()).collect();
    assert!(starts.contains(&"interrupted"), "{starts:?}");
}
