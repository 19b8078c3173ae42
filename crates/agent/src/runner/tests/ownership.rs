//! The owner of the host: tasks for other workloads are refused until the host is clean.

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{session::TaskLine, task::TaskOutcome};
use serde_json::json;

use super::test_node::{HEAD, LEDGER, TestNode, failure, installing, of_workload, residue, statement};

async fn assert_succeeds(test_node: &TestNode, task: &TaskStatement) {
    let end = test_node.end(task).await;
    assert!(matches!(end, TaskLine::Ended(TaskOutcome::Succeeded { .. })), "{end:?}");
}

#[tokio::test]
async fn task_of_another_workload_is_refused_while_one_owns_the_host() {
    let test_node = TestNode::new().await;
    assert_succeeds(&test_node, &installing(1, 1)).await;
    assert_eq!(test_node.refusal(&installing(2, 2)).await, Code::HostInUse);
    assert_eq!(test_node.refusal(&residue(2, 3, &[])).await, Code::HostInUse, "a residue check is refused too");
    assert_succeeds(&test_node, &installing(1, 4)).await;
    assert_succeeds(&test_node, &statement(5)).await;
}

#[tokio::test]
async fn same_workload_by_another_allocation_is_refused() {
    let test_node = TestNode::new().await;
    assert_succeeds(&test_node, &installing(1, 1)).await;
    let moved = TaskStatement { allocation: installing(2, 2).allocation, ..installing(1, 2) };
    assert_eq!(test_node.refusal(&moved).await, Code::HostInUse);
}

#[tokio::test]
async fn owner_survives_a_restart_and_a_rewritten_ledger() {
    let mut test_node = TestNode::new().await;
    assert_succeeds(&test_node, &installing(1, 1)).await;
    // Each start rewrites the ledger.
    for number in 2..4 {
        test_node.restart().await.unwrap();
        assert_eq!(test_node.refusal(&installing(2, number)).await, Code::HostInUse);
    }
    assert!(test_node.text(LEDGER).await.starts_with("{\"line\":\"fence\""), "the first line has the owner");
}

#[tokio::test]
async fn clean_residue_report_frees_the_host_and_one_with_findings_does_not() {
    let mut test_node = TestNode::new().await;
    assert_succeeds(&test_node, &installing(1, 1)).await;
    assert_succeeds(&test_node, &residue(1, 2, &["/var/lib/rancher"])).await;
    assert_eq!(test_node.refusal(&installing(2, 3)).await, Code::HostInUse);
    assert_succeeds(&test_node, &residue(1, 4, &[])).await;
    test_node.restart().await.unwrap();
    assert_succeeds(&test_node, &installing(2, 5)).await;
    assert_eq!(test_node.refusal(&installing(1, 6)).await, Code::HostInUse, "the former owner no longer owns the host");
}

#[tokio::test]
async fn residue_check_claims_no_host() {
    let test_node = TestNode::new().await;
    assert_succeeds(&test_node, &residue(1, 1, &["/etc/rancher"])).await;
    assert_succeeds(&test_node, &installing(2, 2)).await;
}

#[tokio::test]
async fn owner_of_an_earlier_enrollment_is_ignored() {
    let test_node = TestNode::new().await;
    let owner = installing(1, 1);
    let (workload, allocation) = (owner.workload.unwrap(), owner.allocation.unwrap());
    let line =
        json!({ "line": "fence", "fence": 4, "owner": { "epoch": 2, "workload": workload, "allocation": allocation } });
    let file = gpuaas_host::FileSpec { path: LEDGER.into(), mode: 0o600, content: format!("{line}\n").into_bytes() };
    test_node.host.files().write(&file).await.unwrap();
    // The ledger of an agent that gave it no id.
    test_node.host.files().remove(HEAD.into()).await.unwrap();
    let mut test_node = test_node;
    test_node.expected.id = None;
    test_node.restart().await.unwrap();
    assert_succeeds(&test_node, &installing(2, 2)).await;
}

#[tokio::test]
async fn workload_task_without_workload_or_allocation_is_refused() {
    let test_node = TestNode::new().await;
    let whole = installing(1, 1);
    for cut in [
        TaskStatement { workload: None, ..whole.clone() },
        TaskStatement { allocation: None, ..whole.clone() },
        TaskStatement { workload: None, allocation: None, ..whole },
        TaskStatement { allocation: None, ..of_workload(1, 1, "host.noop", json!({})) },
    ] {
        assert_eq!(test_node.refusal(&cut).await, Code::EnvelopeRecipientMismatch);
    }
}

#[tokio::test]
async fn failed_task_keeps_the_host_with_its_workload() {
    let test_node = TestNode::new().await;
    let accepted = test_node.send(&super::test_node::changing(1)).await.ok().unwrap();
    let running = super::test_node::begun(accepted).await;
    test_node.runner.cancel(super::test_node::task(1));
    assert_eq!(failure(super::test_node::end(running).await), Code::TaskCancelled);
    assert_eq!(test_node.refusal(&installing(2, 2)).await, Code::HostInUse);
}
