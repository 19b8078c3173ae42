//! Cancelling an operation: the running step is stopped, pending steps never start, and the workload can be resumed or removed.

use std::time::Instant;

use gpuaas_api_types::Started;

use crate::world::{PROJECT, Platform, eventually};

/// Deploys with a fault, and returns while the step runs.
async fn started(fault: &str, step: &str) -> (Platform, Started) {
    let platform = Platform::with_release(1, &[]).await;
    platform.inject_faults(1, fault);
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    eventually("the step does not run", async || {
        let detail = client.get_operation(&started.operation.id).await.expect("an operation");
        detail.steps.iter().any(|of| of.key == step && of.state == "running")
    })
    .await;
    (platform, started)
}

/// Deploys with a fault, cancels while the step runs, and returns once the operation has ended.
async fn cancelled_while(fault: &str, step: &str) -> Platform {
    let (platform, started) = started(fault, step).await;
    let client = platform.client();
    let shown = async || client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload");
    assert_eq!(shown().await.workload.actions, ["cancel"]);
    let requested_at = Instant::now();
    assert!(client.cancel_operation(&started.operation.id).await.expect("accepted").cancel_requested);
    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "cancelled", "{:?}", ended.operation.fault);
    assert!(requested_at.elapsed().as_secs() < 30, "the cancellation waited for the step's deadline");
    let states: Vec<&str> = ended.steps.iter().map(|step| step.state.as_str()).collect();
    assert!(states.contains(&"cancelled") && states.contains(&"skipped"), "{states:?}");
    let detail = shown().await;
    assert_eq!(detail.workload.actions, ["resume", "decommission"]);
    let refused: Vec<&str> = detail.refused_actions.iter().map(|refused| refused.action.as_str()).collect();
    assert_eq!(refused, ["cancel"]);
    let member = &detail.members[0];
    let code = member.fault.as_ref().map(|fault| fault.code.as_str());
    assert_eq!((member.state.as_str(), code), ("failed", Some("operation_cancelled")));
    platform
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_start_reaches_the_node_and_can_be_resumed() {
    let platform = cancelled_while("etcd-never-ready", "server-1/start").await;
    let client = platform.client();
    platform.inject_faults(1, "");
    let resumed = client.resume_workload(Some(PROJECT.into()), "train").await.expect("accepted");
    let resumed = platform.await_end(&resumed).await;
    assert_eq!(resumed.operation.state, "succeeded", "{:?}", resumed.operation.fault);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_cluster_call_ends_at_once_and_the_workload_can_be_removed() {
    let platform = cancelled_while("cni-not-initialized", "server-1/wait-ready").await;
    let removed = platform.client().decommission_workload(Some(PROJECT.into()), "train").await.expect("accepted");
    let removed = platform.await_end(&removed).await;
    assert_eq!(removed.operation.state, "succeeded", "{:?}", removed.operation.fault);
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_cancellation_is_shown_until_the_operation_ends() {
    let (platform, started) = started("etcd-never-ready", "server-1/start").await;
    let id = started.operation.id.as_str();
    // The step runs until its node learns of the cancellation.
    platform.signal_agent(1, "STOP");
    let printed = |arguments: &[&str]| {
        let output = platform.gpuaas(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    for (arguments, expected) in [
        (&["operation", "cancel", id][..], " is requested."),
        (&["operation", "cancel", id], " was already requested."),
        (&["operation", "list", "--project", PROJECT], "running (cancellation requested)"),
        (&["operation", "show", id], "running (cancellation requested)"),
        (&["workload", "show", "train", "--project", PROJECT], "OPERATION deploy · running (cancellation requested)"),
    ] {
        let printed = printed(arguments);
        assert!(printed.contains(expected), "{printed}");
    }
    platform.signal_agent(1, "CONT");
    assert_eq!(platform.await_end(&started).await.operation.state, "cancelled");
    assert!(!printed(&["operation", "show", id]).contains("cancellation requested"), "the operation has ended");
}
