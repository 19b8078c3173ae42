//! Nodes whose agents find their own files damaged: an operator sees the reason, the node gets no tasks, and a new enrollment restores it.

use std::path::Path;

use gpuaas_api_types::{CreateAllocation, CreateProject, EnrollNode};
use gpuaas_client::{Client, ClientError};
use serde_json::Value;

use crate::{fleet::Fleet, world::eventually};

const LEDGER: &str = "var/lib/gpuaas-agent/ledger.jsonl";
const IDENTITY: &str = "var/lib/gpuaas-agent/identity.json";

fn code(error: ClientError) -> String {
    match error {
        ClientError::Problem(problem) => problem.code.to_string(),
        other => panic!("expected a problem document, got {other}"),
    }
}

fn flip(file: &Path) {
    let mut content = std::fs::read(file).expect("a file");
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(file, content).expect("written");
}

/// Waits until the node is connected and its agent takes tasks, or takes none if `takes_tasks` is false.
async fn until_connected(client: &Client, takes_tasks: bool) -> gpuaas_api_types::Node {
    let mut found = None;
    eventually("the node does not reach the expected state", async || {
        let node = client.get_node("gpu-1").await.expect("a node");
        let is_so = node.connectivity == "connected" && node.agent_problem.is_none() == takes_tasks;
        found = Some(node).filter(|_| is_so);
        is_so
    })
    .await;
    found.expect("a node in the expected state")
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_a_damaged_ledger_gets_no_tasks_until_it_enrolls_again() {
    let fleet = Fleet::start(1).await;
    let client = fleet.client();
    let project = client.create_project(&CreateProject { name: "research".into() }).await.expect("made").id;
    let ask = CreateAllocation { project, node: "gpu-1".into() };
    let allocation = client.create_allocation(&ask).await.expect("made").id;
    eventually("the allocation does not become active", async || {
        client.get_allocation(&allocation).await.is_ok_and(|allocation| allocation.state == "active")
    })
    .await;
    let damages: [fn(&Path); 2] = [|file| std::fs::remove_file(file).expect("removed"), flip];
    for damage in damages {
        assert_eq!(client.ping_node("gpu-1").await.expect("it serves").task.state, "succeeded");
        let before = client.get_node("gpu-1").await.expect("a node").ledger.expect("a ledger").id;
        let file = fleet.node_file(1, LEDGER);
        damage(&file);
        let left = std::fs::read(&file).ok();
        fleet.kill_agent(1);
        let node = until_connected(&client, false).await;
        let problem = node.agent_problem.expect("a problem");
        assert_eq!((node.state.as_str(), problem.code.as_str()), ("active", "agent_ledger_damaged"));
        assert!(problem.detail.contains("ledger.jsonl"), "{problem:?}");
        assert_eq!(node.ledger.expect("the last usable one").id, before);
        assert!(problem.next.contains("gpuaas node enroll gpu-1"), "{problem:?}");
        for refused in [client.ping_node("gpu-1").await.map(drop), client.inspect_node("gpu-1").await.map(drop)] {
            assert_eq!(code(refused.expect_err("it takes no tasks")), "agent_ledger_damaged");
        }
        assert_eq!(std::fs::read(&file).ok(), left, "the damaged file was changed");
        let again = client.issue_enrollment("gpu-1", &EnrollNode::default()).await.expect("issued");
        fleet.enroll_again(1, &again.enrollment.string);
        let node = until_connected(&client, true).await;
        assert_eq!(node.state, "active");
        eventually("the node does not report its new ledger", async || {
            let node = client.get_node("gpu-1").await.expect("a node");
            node.ledger.is_some_and(|ledger| ledger.id != before)
        })
        .await;
    }
    assert_eq!(client.ping_node("gpu-1").await.expect("it serves").task.state, "succeeded");
    assert_eq!(client.get_allocation(&allocation).await.expect("held").state, "active", "allocation lost");
    let events = client.list_events(None, 0).await.expect("listed").items;
    let reported = events.iter().filter(|event| event.kind == "node.agent_problem_changed");
    let reported: Vec<Value> = reported.map(|event| event.data["problem"].clone()).collect();
    let damaged = Value::from("agent_ledger_damaged");
    assert_eq!(reported, [damaged.clone(), Value::Null, damaged, Value::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_a_damaged_identity_logs_it_and_is_enrolled_again_by_force() {
    let fleet = Fleet::start(1).await;
    let client = fleet.client();
    flip(&fleet.node_file(1, IDENTITY));
    fleet.kill_agent(1);
    let journal = fleet.node_file(1, ".sandbox/journal/gpuaas-agent.service.jsonl");
    eventually("the agent does not log the damage", async || {
        let log_text = std::fs::read_to_string(&journal).unwrap_or_default();
        ["identity.json is damaged", "agent_identity_damaged", "exit status 9", "gpuaas node enroll NODE --force"]
            .iter()
            .all(|words| log_text.contains(words))
    })
    .await;
    let log_text = std::fs::read_to_string(&journal).expect("a journal");
    assert!(!log_text.contains("cannot be reached"), "{log_text}");
    assert_eq!(
        code(client.issue_enrollment("gpu-1", &EnrollNode::default()).await.expect_err("in use")),
        "state_conflict"
    );
    let forced = EnrollNode { force: true, reason: Some("its identity is damaged".to_owned()) };
    let again = client.issue_enrollment("gpu-1", &forced).await.expect("issued");
    // The agent exits on every start, so there is no agent to kill.
    std::fs::write(fleet.node_file(1, "var/lib/gpuaas-agent/enroll"), &again.enrollment.string).expect("written");
    eventually("the node does not reconnect", async || {
        client.ping_node("gpu-1").await.is_ok_and(|ping| ping.task.state == "succeeded")
    })
    .await;
}
