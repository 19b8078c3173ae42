//! Death of a control-plane process in the middle of a deployment.

use std::time::Instant;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::running::{RunningDemo, WAIT_MAX};

/// Runs `deploy` through the second process, kills that process during the server's bootstrap, and follows the operation to its end through
/// the first.
pub(super) fn kill_during_start(running: &RunningDemo, deploy: &[&str]) -> anyhow::Result<Value> {
    let ready: Value = serde_json::from_slice(&std::fs::read(&running.ready_file)?)?;
    let victim = ready.pointer("/replicas/1").context("the ready file lists no second replica")?;
    let url = victim.get("url").and_then(Value::as_str).context("the second replica has no URL")?;
    let pid = victim.get("pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(Pid::from_raw).context("the second replica has no PID")?;
    let started = running.gpuaas(&[deploy, &["--url", url]].concat())?;
    let operation =
        started.pointer("/operation/id").and_then(Value::as_str).context("the deployment has no operation ID")?;
    until_running(running, operation, "server-1/start")?;
    let drives = drives(running, url)?;
    kill_process(pid, Signal::KILL).context("killing the replica")?;
    println!("  killed          the replica at {url}, which drove {drives} operation(s), during server-1/start");
    let killed = Instant::now();
    running.gpuaas(&["operation", "watch", operation])?;
    println!(
        "  taken over      by the other, which finished the deployment {:.1} s later",
        killed.elapsed().as_secs_f64()
    );
    let left = running.gpuaas(&["replica", "list"])?;
    anyhow::ensure!(left.as_array().is_some_and(|left| left.len() == 1), "the dead replica is still listed: {left}");
    running.gpuaas(&["operation", "show", operation])
}

fn drives(running: &RunningDemo, url: &str) -> anyhow::Result<u64> {
    let replicas = running.gpuaas(&["replica", "list"])?;
    let replica =
        replicas.as_array().into_iter().flatten().find(|replica| replica.get("api_url").is_some_and(|of| of == url));
    replica.and_then(|replica| replica.get("operations")?.as_u64()).context("the replica is not listed")
}

fn until_running(running: &RunningDemo, operation: &str, step: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let shown = running.gpuaas(&["operation", "show", operation])?;
        let mut steps = shown.get("steps").and_then(Value::as_array).into_iter().flatten();
        let text = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        if steps.any(|of| text(of, "key") == step && text(of, "state") == "running") {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < WAIT_MAX, "{step} did not start in time");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
