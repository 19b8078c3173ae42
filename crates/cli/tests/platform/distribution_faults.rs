//! Distributions that do not start: the operation ends with a named fault, evidence and a next action, and never waits forever.

use gpuaas_api_types::{Deploy, Fault, OperationDetail};

use crate::world::{PROJECT, Platform};

/// Returns start deadlines as short as possible for tests that wait for one to pass. A server of the stand-in needs 3 s to start, and ten
/// times as long on a busy machine.
const fn deadlines(seconds: &str) -> [(&str, &str); 2] {
    [("GPUAAS_RKE2_START_DEADLINE", seconds), ("GPUAAS_RKE2_NODE_READY_DEADLINE", seconds)]
}

async fn deployed(platform: &Platform, deploy: &Deploy) -> OperationDetail {
    let started = platform.client().deploy_workload(deploy).await.expect("accepted");
    platform.await_end(&started).await
}

fn assert_fault(fault: Option<&Fault>, code: &str) {
    let fault = fault.expect("a fault");
    assert_eq!(fault.code, code, "{fault:?}");
    assert!(fault.evidence.is_some() && !fault.next.is_empty(), "{fault:?}");
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/errors/{code}.md"));
    assert!(page.exists(), "{code} has no page");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_exits_at_once_fails_the_deploy_and_can_be_resumed() {
    let platform = Platform::with_release(1, &deadlines("90s")).await;
    platform.inject_faults(1, "exit-at-once");
    let deploy = platform.deployment("train", &[]).await;
    let ended = deployed(&platform, &deploy).await;
    assert_eq!(ended.operation.state, "needs_attention");
    assert_fault(ended.operation.fault.as_ref(), "rke2_crash_loop");
    let client = platform.client();
    let workload = client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload").workload;
    assert_eq!((workload.health.as_str(), workload.section.as_str()), ("failed", "needs_attention"));
    let arguments = ["operation", "list", "--workload", "train", "--project", PROJECT, "-o", "name"];
    let names = platform.gpuaas(&arguments).stdout;
    assert_eq!(String::from_utf8_lossy(&names).trim(), ended.operation.id, "what a script resumes or reports");
    platform.inject_faults(1, "");
    let resumed = client.resume_workload(Some(PROJECT.into()), "train").await.expect("accepted");
    let resumed = platform.await_end(&resumed).await;
    assert_eq!(resumed.operation.state, "succeeded", "{:?}", resumed.operation.fault);
    assert_eq!(resumed.operation.resumes, Some(ended.operation.id));
    let listed = platform.json(&["operation", "list", "--workload", "train", "--project", PROJECT]);
    let ids = [0, 1].map(|at: usize| listed[at]["id"].as_str().map(str::to_owned));
    assert_eq!(ids, [Some(resumed.operation.id), resumed.operation.resumes], "newest first: {listed}");
    let workload = client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload").workload;
    assert_eq!((workload.lifecycle.as_str(), workload.health.as_str()), ("running", "healthy"));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_never_becomes_ready_fails_at_its_deadline() {
    let platform = Platform::with_release(1, &deadlines("12s")).await;
    platform.inject_faults(1, "etcd-never-ready");
    let ended = deployed(&platform, &platform.deployment("train", &[]).await).await;
    assert_eq!(ended.operation.state, "needs_attention");
    assert_fault(ended.operation.fault.as_ref(), "rke2_etcd_not_ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_cannot_reach_its_server_fails_and_the_kubeconfig_is_delivered() {
    let platform = Platform::with_release(2, &deadlines("40s")).await;
    platform.inject_faults(2, "server-unreachable");
    let ended = deployed(&platform, &platform.deployment("train", &[2]).await).await;
    assert_eq!(ended.operation.state, "needs_attention");
    let client = platform.client();
    let detail = client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload");
    assert_eq!((detail.workload.lifecycle.as_str(), detail.workload.health.as_str()), ("running", "degraded"));
    let agent = detail.members.iter().find(|member| member.name == "agent-1").expect("an agent");
    assert_eq!(agent.state, "failed");
    assert_fault(agent.fault.as_ref(), "rke2_server_unreachable");
    let granted = client.deliver_kubeconfig(Some(PROJECT.into()), "train", &Default::default()).await;
    assert!(granted.is_ok(), "the kubeconfig needs only the server: {:?}", granted.err());
}
