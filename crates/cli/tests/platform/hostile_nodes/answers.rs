//! Invalid answers from nodes: malformed, too large, out of order, or about other objects.

use futures::stream;
use gpuaas_api_types::{Allocation, CreateAllocation, CreateProject};
use gpuaas_client::{AuditQuery, Client, ClientError};
use gpuaas_model::{Code, TaskType};
use gpuaas_wire::{
    session::{Refusal, TaskLine},
    task::{TaskFailure, TaskOutcome, TaskProgress},
};
use http::Method;
use serde_json::{Value, json};

use super::{
    lie::{Lies, body, facts, lines, succeeded, unfinished},
    node::{Node, send_request},
};
use crate::{
    fleet::Fleet,
    restarts::{prepare_deployment, until_running},
    world::{CLUSTERS, eventually},
};

async fn await_active(client: &Client, node: &str) {
    eventually("the node does not become active", async || {
        client.get_node(node).await.is_ok_and(|shown| shown.state == "active")
    })
    .await;
}

/// Enrolls a node whose inspection reports `found`, and returns the node's allocation once the inspection has ended.
async fn inspected(client: &Client, name: &str, found: Value) -> Allocation {
    let node = Node::enrolled(client, name).await;
    let _serving = node.serve(Lies::default().on_task(TaskType::Inspect, move |_| succeeded(found.clone()))).await;
    await_active(client, name).await;
    let ask = CreateAllocation { project: "research".into(), node: name.into() };
    let id = client.create_allocation(&ask).await.expect("made").id;
    let mut found = None;
    eventually("the inspection does not end", async || {
        let list = client.list_allocations(None, None).await.expect("listed").items;
        found = list.into_iter().find(|of| of.id == id && ["active", "failed"].contains(&of.state.as_str()));
        found.is_some()
    })
    .await;
    found.expect("an allocation")
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_facts_are_cut_or_refused_and_unknown_fields_dropped() {
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    client.create_project(&CreateProject { name: "research".into() }).await.expect("made");
    let mut wordy = facts();
    wordy["os"] = json!("x".repeat(200_000));
    wordy["also"] = json!("y".repeat(200_000));
    assert_eq!(inspected(&client, "gpu-1", wordy).await.state, "active");
    let shown = client.get_node("gpu-1").await.expect("a node").facts.expect("facts");
    assert!(shown.os.len() == 256 && shown.os.ends_with("[cut]"), "{}", shown.os);
    let task = client.list_tasks(Some("gpu-1".into()), None).await.expect("tasks").items.remove(0);
    let kept = serde_json::to_string(&task).expect("JSON");
    assert!(kept.len() < 4_096 && !kept.contains("yyy"), "{} bytes are kept", kept.len());
    let mut listing = facts();
    listing["addresses"] = json!(vec!["10.0.0.7"; 5_000]);
    let mut injecting = facts();
    injecting["addresses"] = json!(["10.0.0.7\nserver: https://10.6.6.6:9345"]);
    for (name, odd) in [("gpu-2", listing), ("gpu-3", injecting), ("gpu-4", json!("nonsense"))] {
        let allocation = inspected(&client, name, odd).await;
        assert_eq!(allocation.state, "failed", "{name}");
        assert!(client.get_node(name).await.expect("a node").facts.is_none(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn out_of_order_task_lines_end_a_task_once() {
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let node = Node::enrolled(&client, "gpu-1").await;
    let progress = |text: &str| TaskLine::Progress(TaskProgress { text: text.to_owned(), percent: Some(255) });
    let failed = || TaskLine::Ended(TaskOutcome::Failed { failure: TaskFailure::new(Code::HostFailed, "no") });
    let done = || TaskLine::Ended(TaskOutcome::Succeeded { result: json!({}) });
    let disorder = move |_| {
        let out_of_order = [
            progress("before it began"),
            done(),
            failed(),
            TaskLine::Interrupted,
            TaskLine::Accepted,
            progress("after"),
            done(),
        ];
        lines(stream::iter(out_of_order))
    };
    let _serving = node.serve(Lies::default().on_task(TaskType::Noop, disorder)).await;
    await_active(&client, "gpu-1").await;
    let ping = client.ping_node("gpu-1").await.expect("an answer");
    assert_eq!(ping.task.state, "succeeded");
    let ends = client.list_audit(&AuditQuery::default()).await.expect("records").items;
    let is_of_ping = |task: &serde_json::Value| task.as_str() == Some(ping.task.id.as_str());
    let of_ping = ends.iter().filter(|record| record.action == "task.complete" && is_of_ping(&record.metadata["task"]));
    assert_eq!(of_ping.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_node_is_reported_as_node_busy_for_both_agent_codes() {
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let node = Node::enrolled(&client, "gpu-1").await;
    for called in [Code::NodeBusy, Code::Unavailable] {
        let busy = move |_| {
            let refusal = Refusal { code: called, message: "32 tasks are under way already".to_owned() };
            let mut response = http::Response::new(body(serde_json::to_vec(&refusal).expect("JSON")));
            *response.status_mut() = http::StatusCode::from_u16(called.status()).expect("a status");
            response
        };
        let lies = Lies::default().on_task(TaskType::Noop, busy).on_task(TaskType::Inspect, busy);
        let serving = node.serve(lies).await;
        await_active(&client, "gpu-1").await;
        for refused in [client.ping_node("gpu-1").await.err(), client.inspect_node("gpu-1").await.err()] {
            let ClientError::Problem(problem) = refused.expect("it is busy") else { panic!("not a problem") };
            assert_eq!((problem.status, problem.code.as_str()), (429, "node_busy"), "{called}: {problem:?}");
            assert!(problem.detail.contains("32 tasks are under way"), "{problem:?}");
        }
        serving.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_reads_only_secrets_of_its_own_open_task_and_replaces_none() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let nodes = [Node::enrolled(&client, "gpu-1").await, Node::enrolled(&client, "gpu-2").await];
    let (statement_sender, mut statements) = tokio::sync::mpsc::unbounded_channel();
    let holding = move |statement| {
        let _ = statement_sender.send(statement);
        unfinished()
    };
    let _one = nodes[0].serve(Lies::default().on_task(TaskType::Rke2Configure, holding)).await;
    let _other = nodes[1].serve(Lies::default().on_task(TaskType::Preflight, |_| unfinished())).await;
    for node in ["gpu-1", "gpu-2"] {
        await_active(&client, node).await;
    }
    let deploy = prepare_deployment(&client).await;
    let operation = client.deploy_workload(&deploy).await.expect("accepted").operation.id;
    until_running(&client, &operation, "server-1/configure").await;
    let statement = statements.recv().await.expect("the task that configures");
    let secret = statement.params["token"]["secret_id"].as_str().expect("a secret");
    let target = format!("/v1/secrets/{secret}");
    let mut fetching = [nodes[0].fetch().await, nodes[1].fetch().await];
    let status = |answer: Option<(u16, Value)>| answer.expect("an answer").0;
    assert_eq!(
        status(send_request(&mut fetching[0], Method::GET, &target, "").await),
        200,
        "its own task cannot read it"
    );
    assert_eq!(
        status(send_request(&mut fetching[1], Method::GET, &target, "").await),
        404,
        "another node's task can read it"
    );
    for sender in &mut fetching {
        assert_eq!(status(send_request(sender, Method::PUT, &target, "mine now").await), 404, "a node can replace it");
    }
    let release = client.list_artifacts().await.expect("artifacts").items;
    let digest = release[0].sha256.trim_start_matches("sha256:");
    let artifact = format!("/v1/artifacts/{digest}");
    for sender in &mut fetching {
        assert_eq!(
            status(send_request(sender, Method::GET, &artifact, "").await),
            404,
            "a node can read it without a task"
        );
    }
}
