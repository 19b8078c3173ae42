//! Decommission of a cluster while the agent of a node does not answer.

use gpuaas_api_types::{OperationDetail, Started};
use gpuaas_client::{Client, ClientError};

use crate::world::{PROJECT, Platform, eventually};

fn project() -> Option<String> {
    Some(PROJECT.to_owned())
}

/// Deploys `train` on two nodes, stops the agent of the second one, and starts a decommission that waits for it.
async fn waiting() -> (Platform, Client, Started) {
    let platform = Platform::with_release(2, &[]).await;
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[2]).await).await.expect("accepted");
    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
    platform.signal_agent(2, "STOP");
    eventually("the node does not become unreachable", async || {
        client.get_node("demo-2").await.is_ok_and(|node| node.connectivity == "unreachable")
    })
    .await;
    let decommission = client.decommission_workload(project(), "train").await.expect("accepted");
    eventually("the other node is not cleaned", async || {
        let members = client.list_members(project(), "train").await;
        members.is_ok_and(|members| members.items.iter().any(|of| of.name == "server-1" && of.state == "removed"))
    })
    .await;
    eventually("nothing explains the wait", async || {
        let workload = client.get_workload(project(), "train").await.expect("a workload").workload;
        workload.waiting_for.is_some_and(|why| why.contains("agent-1 to connect again: demo-2 has been unreachable"))
    })
    .await;
    (platform, client, decommission)
}

fn node_names(detail: &OperationDetail) -> Vec<&str> {
    let mut names: Vec<&str> = detail.residue.iter().map(|report| report.node_name.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn decommission_continues_when_its_node_returns_and_reports_what_it_found_and_removed() {
    let (platform, _, decommission) = waiting().await;
    platform.signal_agent(2, "CONT");
    let ended = platform.await_end(&decommission).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
    assert_eq!(node_names(&ended), ["demo-1", "demo-2"]);
    for report in &ended.residue {
        assert!(report.items.is_empty() && report.unchecked.is_empty() && report.given_up.is_none(), "{report:?}");
        assert!(!report.found.is_empty() && report.removed == report.found, "{report:?}");
    }
    let shown = platform.gpuaas(&["workload", "show", "train", "--project", PROJECT]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("RESIDUE") && shown.contains("nothing left ("), "also when it is clean: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_is_given_up_stays_blocked_and_is_inspected_when_it_returns() {
    let (mut platform, client, decommission) = waiting().await;
    let give_up = ["workload", "decommission", "train", "--project", PROJECT, "--give-up", "demo-2", "--yes", "--wait"];
    let with_reason = [&give_up[..], &["--reason", "burnt down"]].concat();
    let refused = platform.gpuaas(&give_up);
    assert_eq!(refused.status.code(), Some(2), "a reason is required");
    let done = platform.gpuaas(&with_reason);
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && shown.contains("demo-2: given up: burnt down (by "), "{shown}");
    assert_eq!(platform.await_end(&decommission).await.operation.state, "cancelled", "it has waited for nothing else");
    let detail = client.get_workload(project(), "train").await.expect("a workload");
    assert_eq!(detail.workload.lifecycle, "decommissioned");
    assert!(detail.members.iter().all(|member| member.state == "removed"), "{detail:?}");

    let checks = async || {
        let preflight = client.get_node("demo-2").await.expect("a node").preflight.expect("findings");
        let blocking = preflight.findings.into_iter().filter(|finding| finding.severity == "blocking");
        blocking.map(|finding| finding.check).collect::<Vec<_>>()
    };
    assert_eq!(checks().await, ["removal_unproven"]);
    platform.signal_agent(2, "CONT");
    eventually("it is not inspected", async || checks().await.len() > 1).await;
    assert_eq!(checks().await[0], "removal_unproven", "it still runs what it ran");
    let code = match client.release_allocation(&platform.allocation(2).await).await {
        Err(ClientError::Problem(problem)) => problem.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code, "allocation_unproven");
    client.release_allocation(&platform.allocation(1).await).await.expect("its removal is proven");
    // What was given up still runs, and its agent does not answer: only the node's init can end it.
    platform.signal_agent(2, "STOP");
    assert_eq!(platform.end(), [""; 0], "left behind on a node that was given up");
}
