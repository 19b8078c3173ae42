//! A machine released by its tenant goes through the operator's reimage hook, and rejoins only with the value that the hook received.

use gpuaas_api_types::{CreateAllocation, CreateProject};
use gpuaas_client::{AuditQuery, Client, ClientError};
use serde_json::Value;

use crate::{fleet::Fleet, world::eventually};

fn code(error: ClientError) -> String {
    match error {
        ClientError::Problem(problem) => problem.code,
        other => other.to_string(),
    }
}

/// Allocates the node to a project and releases it.
async fn allocate_and_release(client: &Client) {
    client.create_project(&CreateProject { name: "acme".into() }).await.expect("made");
    let ask = CreateAllocation { project: "acme".into(), node: "gpu-1".into() };
    let allocation = client.create_allocation(&ask).await.expect("allocated");
    eventually("the allocation does not become active", async || {
        client.get_allocation(&allocation.id).await.is_ok_and(|allocation| allocation.state == "active")
    })
    .await;
    client.release_allocation(&allocation.id).await.expect("released");
    let node = client.get_node("gpu-1").await.expect("a node");
    assert_eq!(node.state, "needs_reimage");
}

async fn audited(client: &Client, action: &str) -> Vec<String> {
    let records = client
        .list_audit(&AuditQuery { target: Some("node/gpu-1".into()), ..AuditQuery::default() })
        .await
        .expect("records")
        .items;
    records.into_iter().filter(|record| record.action == action).map(|record| record.result).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reimaged_machine_enrolls_only_with_the_value_from_the_hook() {
    let fleet = Fleet::start_with_reimage_hook(1, "cat >order.json").await;
    let client = fleet.client();
    assert_eq!(client.reimage_node("gpu-1").await.map_err(code).expect_err("it is in use"), "state_conflict");
    allocate_and_release(&client).await;
    let node = client.reimage_node("gpu-1").await.expect("handed over");
    assert_eq!(node.state, "registered");
    let order = std::fs::read(fleet.path("order.json")).expect("the input of the hook");
    let order: Value = serde_json::from_slice(&order).expect("JSON");
    let [string, value] = ["enrollment", "reimage"].map(|field| order[field].as_str().expect("a text"));

    // A machine with a new machine id and only the enrollment string is refused.
    std::fs::write(fleet.node_file(1, "etc/machine-id"), format!("{}\n", "cd".repeat(16))).expect("written");
    fleet.enroll_again(1, string);
    let journal = fleet.node_file(1, ".sandbox/journal/gpuaas-agent.service.jsonl");
    let log_text = || std::fs::read_to_string(&journal).unwrap_or_default();
    eventually("its enrollment is not refused", async || log_text().contains("reimage_unverified")).await;
    assert_eq!(client.get_node("gpu-1").await.expect("a node").state, "registered");

    std::fs::write(fleet.node_file(1, "var/lib/gpuaas-agent/reimage"), value).expect("written");
    fleet.enroll_again(1, string);
    eventually("the machine does not reconnect", async || {
        client.get_node("gpu-1").await.is_ok_and(|node| node.state == "active" && node.connectivity == "connected")
    })
    .await;
    assert!(!fleet.node_file(1, "var/lib/gpuaas-agent/reimage").exists(), "the used value remains");
    assert_eq!(audited(&client, "node.reimage").await, ["refused", "accepted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_reimage_hook_can_be_retried_and_a_missing_one_is_reported() {
    let fleet = Fleet::start_with_reimage_hook(1, "test -e mended").await;
    let client = fleet.client();
    allocate_and_release(&client).await;
    assert_eq!(client.reimage_node("gpu-1").await.map_err(code).expect_err("it fails"), "reimage_hook_failed");
    std::fs::write(fleet.path("mended"), "").expect("written");
    let shown = client.reimage_node("gpu-1").await.expect("handed over the second time");
    assert_eq!(shown.state, "registered");

    let without = Fleet::start(1).await;
    let client = without.client();
    allocate_and_release(&client).await;
    assert_eq!(client.reimage_node("gpu-1").await.map_err(code).expect_err("none"), "reimage_hook_missing");
    assert_eq!(client.get_node("gpu-1").await.expect("a node").state, "needs_reimage");
}
