//! Unit reports from nodes change the health of members at once, for failure and for recovery.

use std::{process::Command, time::Instant};

use crate::world::{PROJECT, Platform, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn killed_distribution_degrades_the_workload_until_it_returns() {
    let platform = Platform::with_release(2, &[]).await;
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[2]).await).await.expect("accepted");
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    let detail = async || client.get_workload(Some(PROJECT.into()), "train").await.expect("a workload");
    assert_eq!(detail().await.workload.health, "healthy");

    let processes = platform.processes();
    let agent = processes.iter().find(|(_, text)| text.contains("bin/rke2 agent") && text.contains("demo-2"));
    let (pid, _) = agent.expect("the distribution of demo-2");
    let killed = Instant::now();
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kill runs").success());
    eventually("the workload is not degraded", async || detail().await.workload.health == "degraded").await;
    let seen = killed.elapsed();
    assert!(seen.as_secs() < 4, "the failure was seen after {seen:?}, and the service restarts after 5 s");
    let shown = detail().await;
    let member = shown.members.iter().find(|member| member.name == "agent-1").expect("an agent");
    let fault = member.fault.as_ref().expect("a fault");
    assert_eq!((fault.code.as_str(), shown.workload.section.as_str()), ("rke2_service_down", "needs_attention"));
    assert!(fault.evidence.is_some() && !fault.next.is_empty(), "{fault:?}");
    let of_workload = shown.workload.fault.expect("the reason in lists");
    assert!(of_workload.summary == fault.summary && fault.summary.starts_with("agent-1: "), "{of_workload:?}");
    eventually("the workload does not heal", async || detail().await.workload.health == "healthy").await;
}
