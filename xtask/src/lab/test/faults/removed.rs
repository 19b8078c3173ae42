//! The agent's package is removed manually while a workload runs.

use anyhow::{Context, ensure};
use gpuaas_api_types::WorkloadDetail;

use super::{
    PATIENCE,
    said::{fault, in_shell, says},
    table::Told,
    world::{Running, World},
};
use crate::lab::node::Node;

/// The workload's fault reports it; the original enrollment command repairs it.
pub(super) fn package(world: &mut World<'_>) -> anyhow::Result<Told> {
    let running = world.running()?;
    let node = running.member.node.clone();
    let unit = |node: &Node| says(node, "systemctl show --property MainPID,ActiveState --value rke2-server | xargs");
    let before = unit(&node)?;
    says(&node, "dpkg --remove gpuaas-agent")?;
    let listed = says(&node, "dpkg --list gpuaas-agent | tail -n 1")?;
    ensure!(listed.starts_with("rc "), "it is installed: {listed}");
    let told = world.platform.until("the workload is degraded", PATIENCE, || {
        let now = shown(world, &running)?;
        let of_member = now.members.first().and_then(|member| member.fault.clone());
        Ok((now.workload.health == "degraded").then_some(of_member))
    })?;
    let outcome = fault(told.as_ref(), "node_unreachable", "see whether the node and its agent run")?;
    let back = in_shell(&node, &running.member.enrollment.command)?;
    back.well_with(&["installed gpuaas-agent_", "already enrolled as ", "connected to "])?;
    world.platform.until("the workload is healthy", PATIENCE, || {
        let now = shown(world, &running)?;
        Ok((now.workload.health == "healthy" && now.workload.lifecycle == "running").then_some(()))
    })?;
    let now = unit(&node)?;
    ensure!(
        before == now && now.split(' ').any(|word| word == "active"),
        "the workload's own unit was {before}, and is {now}"
    );
    world.leave_running(running.workload, running.member);
    Told::new(
        format!("degraded, {outcome}; the same line put it back, and rke2-server ran on throughout"),
        [format!("dpkg --list: {listed}; rke2-server: {now} before and after")],
    )
}

fn shown(world: &World<'_>, running: &Running) -> anyhow::Result<WorkloadDetail> {
    world.platform.gpuaas(&["workload", "show", &running.workload]).context("the workload")
}
