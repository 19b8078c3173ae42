//! What a genuine cluster shows of its KubeNodes changes the health of members whose services run.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use gpuaas_api_types::WorkloadDetail;
use serde_json::json;

use crate::{
    kubectl::Kubectl,
    world::{PROJECT, Platform, eventually, show},
};

/// Longest time from what the cluster shows to what the API shows: it must last ten seconds before it counts.
const SEEN_WITHIN: Duration = Duration::from_secs(15);

/// A healthy workload with its server on demo-1 and an agent on demo-2.
async fn deployed() -> Platform {
    let platform = Platform::with_release(2, &[]).await;
    let started = platform.client().deploy_workload(&platform.deployment("train", &[2]).await).await.expect("accepted");
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    platform
}

async fn detail(platform: &Platform) -> WorkloadDetail {
    platform.client().get_workload(Some(PROJECT.into()), "train").await.expect("a workload")
}

/// Code of the agent's fault.
async fn fault(platform: &Platform) -> Option<String> {
    let members = detail(platform).await.members;
    let agent = members.into_iter().find(|member| member.name == "agent-1").expect("an agent");
    agent.fault.map(|fault| fault.code)
}

async fn until_fault(platform: &Platform, code: &str) {
    let failure = format!("the agent does not get the fault {code}");
    eventually(&failure, async || fault(platform).await.as_deref() == Some(code)).await;
}

async fn until_healthy(platform: &Platform) {
    eventually("the workload does not heal", async || detail(platform).await.workload.health == "healthy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_kube_node_degrades_its_member_until_a_repair_registers_it_again() {
    let platform = deployed().await;
    let admin = Kubectl::deliver(&platform, "direct", "cluster-admin").await;
    admin.run("delete node demo-2").expect("the KubeNode is deleted");
    let deleted = Instant::now();
    until_fault(&platform, "kube_node_missing").await;
    show(&format!("a deleted KubeNode is shown after {:?}", deleted.elapsed()));
    assert!(deleted.elapsed() < SEEN_WITHIN, "seen after {:?}", deleted.elapsed());
    let shown = detail(&platform).await.workload;
    assert_eq!((shown.health.as_str(), shown.section.as_str()), ("degraded", "needs_attention"));
    let repair = ["workload", "repair", "train", "--scope", "member", "--member", "agent-1", "--project", PROJECT];
    let output = platform.gpuaas(&[&repair[..], &["--yes", "--wait"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until_healthy(&platform).await;
    assert!(admin.run("get node demo-2").is_ok(), "its kubelet has registered it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_kubelet_degrades_its_member_although_its_unit_runs() {
    let platform = deployed().await;
    let admin = Kubectl::deliver(&platform, "direct", "cluster-admin").await;
    let processes = platform.processes();
    let frozen = processes.iter().find(|(_, text)| text.contains("bin/rke2 agent") && text.contains("demo-2"));
    let (pid, _) = frozen.expect("the distribution of demo-2");
    let signal = |name: &str| Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(signal("-STOP").success());
    // Kubernetes itself waits about 44 s for a kubelet.
    let ready = r#"get node demo-2 --output jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    eventually("the cluster does not miss the kubelet", async || {
        admin.run(ready).is_ok_and(|status| status == "Unknown")
    })
    .await;
    let shown = Instant::now();
    until_fault(&platform, "kube_node_not_ready").await;
    assert!(shown.elapsed() < SEEN_WITHIN, "seen after {:?}", shown.elapsed());
    let agent = detail(&platform).await.members.into_iter().find(|member| member.name == "agent-1");
    let fault = json!(agent.expect("an agent").fault);
    assert!(fault["evidence"].to_string().contains("stopped posting node status"), "{fault}");
    assert!(signal("-CONT").success());
    until_healthy(&platform).await;
}
