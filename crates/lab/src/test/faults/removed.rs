//! The agent's package is removed manually while a workload runs.

use anyhow::{Context, ensure};
use gpuaas_api_types::WorkloadDetail;

use super::{
    WAIT_MAX,
    command_output::{capture_script, expect_fault, run_script},
    environment::{Environment, Running},
    table::CellResult,
};
use crate::node::Node;

/// The workload's fault reports it; the original enrollment command repairs it.
pub(super) fn package(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let running = environment.running()?;
    let node = running.member.node.clone();
    let unit =
        |node: &Node| capture_script(node, "systemctl show --property MainPID,ActiveState --value rke2-server | xargs");
    let before = unit(&node)?;
    capture_script(&node, "dpkg --remove gpuaas-agent")?;
    let listed = capture_script(&node, "dpkg --list gpuaas-agent | tail -n 1")?;
    ensure!(listed.starts_with("rc "), "the package is still installed: {listed}");
    let reported = environment.platform.until("the workload is degraded", WAIT_MAX, || {
        let now = show_workload(environment, &running)?;
        let of_member = now.members.first().and_then(|member| member.fault.clone());
        Ok((now.workload.health == "degraded").then_some(of_member))
    })?;
    let outcome = expect_fault(reported.as_ref(), "node_unreachable", "check whether the node and its agent run")?;
    let back = run_script(&node, &running.member.enrollment.command)?;
    back.expect_success_with(&["installed gpuaas-agent_", "already enrolled as ", "connected to "])?;
    environment.platform.until("the workload is healthy", WAIT_MAX, || {
        let now = show_workload(environment, &running)?;
        Ok((now.workload.health == "healthy" && now.workload.lifecycle == "running").then_some(()))
    })?;
    let now = unit(&node)?;
    ensure!(before == now && now.split(' ').any(|word| word == "active"), "rke2-server was {before}, and is {now}");
    environment.leave_running(running.workload, running.member);
    CellResult::new(
        format!("degraded, {outcome}; the same command reinstalled it, and rke2-server ran throughout"),
        [format!("dpkg --list: {listed}; rke2-server: {now} before and after")],
    )
}

fn show_workload(environment: &Environment, running: &Running) -> anyhow::Result<WorkloadDetail> {
    environment.platform.gpuaas(&["workload", "show", &running.workload]).context("reading the workload")
}
