//! Agents of other versions than the control plane. The schemas that an agent lists decide in which form it receives tasks, or that it
//! receives none.
//!
//! The agent simulates the version: test programs have the feature `other-versions`, and a drop-in of the unit sets the version.

use std::fs;

use anyhow::{Context, ensure};
use gpuaas_api_types::Task;
use serde_json::Value;

use super::{
    PATIENCE, agent_of,
    said::{must_have_page, says},
    table::Told,
    world::{Member, World},
};
use crate::lab::node::Node;

/// A task with more than one version of its parameters, sent at enrollment and at allocation.
const RESHAPED: &str = "host.inspect";
/// The drop-in that sets the version.
const DROP_IN: &str = "etc/systemd/system/gpuaas-agent.service.d/version.conf";

/// One version older: receives tasks in the older form.
pub(super) fn older(world: &mut World<'_>) -> anyhow::Result<Told> {
    deployed(world, "older", "0.0.9", |schema, newest| schema == 1 && newest > 1)
}

/// One version newer: receives tasks in the newest form that the control plane knows.
pub(super) fn newer(world: &mut World<'_>) -> anyhow::Result<Told> {
    deployed(world, "newer", "0.2.0", |schema, newest| schema == newest && newest > 1)
}

fn deployed(world: &mut World<'_>, version: &str, shown: &str, fits: fn(u32, u32) -> bool) -> anyhow::Result<Told> {
    let member = world.enrolled(version)?;
    let of_its_own = world.platform.until("the node is inspected", PATIENCE, || {
        let tasks = tasks_of(world, &member)?;
        Ok(tasks.iter().any(|task| task.task_type == RESHAPED && task.state == "succeeded").then_some(tasks))
    })?;
    let newest = of_its_own.iter().filter(|task| task.task_type == RESHAPED).map(|task| task.schema).max().unwrap_or(0);
    let proof = run_as(world, &member, version, shown)?;
    world.platform.allocate(&member.name)?;
    let workload = member.name.clone();
    world.platform.succeeds(&world.deploy(&workload, &member, &[])?)?;
    let mut told = tasks_of(world, &member)?;
    told.retain(|task| !of_its_own.iter().any(|known| known.id == task.id));
    let inspected: Vec<u32> = told.iter().filter(|task| task.task_type == RESHAPED).map(|task| task.schema).collect();
    let fit = !inspected.is_empty() && inspected.iter().all(|&schema| fits(schema, newest));
    ensure!(fit, "{RESHAPED} went in {inspected:?}; an agent of this version is told {newest}");
    let outcome = format!(
        "deployed by {} tasks; {RESHAPED} went in schema {}, to an agent of this version it goes in {newest}",
        told.len(),
        inspected[0]
    );
    world.leave_running(workload, member);
    Told::new(outcome, [proof])
}

/// Too far apart: refused before anything changes; after the upgrade, a dry run of the deployment is accepted.
pub(super) fn apart(world: &mut World<'_>) -> anyhow::Result<Told> {
    let member = world.allocated("apart")?;
    let proof = run_as(world, &member, "apart", "0.0.1")?;
    let before = tasks_of(world, &member)?.len();
    let words = ["workload", "deploy", "rke2", "--name", &member.name, "--server", &member.name];
    let said = world.platform.refused(&words)?;
    let outcome = said.refused("placement_invalid", 4, "upgrade the agent of that node")?;
    ensure!(said.err.contains("agent_too_old"), "the reason is another one: {}", said.err);
    must_have_page("agent_too_old")?;
    ensure!(tasks_of(world, &member)?.len() == before, "the node was told something");
    fs::remove_file(member.node.root().join(DROP_IN))?;
    restart(&member.node)?;
    world.platform.until("the upgraded agent is connected", PATIENCE, || {
        let shown = world.platform.shown(&member.name)?;
        Ok((shown.connectivity == "connected" && shown.agent_version.as_deref() != Some("0.0.1")).then_some(()))
    })?;
    world.platform.gpuaas::<Value>(&[&words[..], &["--dry-run"]].concat())?;
    Told::new(format!("agent_too_old in {outcome}; upgraded, it may be deployed to"), [proof])
}

/// Makes the node's agent report this version; returns the proof from the node's own files.
fn run_as(world: &World<'_>, member: &Member, version: &str, shown: &str) -> anyhow::Result<String> {
    let path = member.node.root().join(DROP_IN);
    fs::create_dir_all(path.parent().context("it lies in a folder")?)?;
    fs::write(&path, format!("[Service]\nEnvironment=GPUAAS_AGENT_VERSION={version}\n"))?;
    restart(&member.node)?;
    world.platform.until(&format!("an agent {shown} is connected"), PATIENCE, || {
        let now = world.platform.shown(&member.name)?;
        Ok((now.connectivity == "connected" && now.agent_version.as_deref() == Some(shown)).then_some(()))
    })?;
    let pid = agent_of(&member.node)?;
    let set = says(&member.node, &format!("tr '\\0' '\\n' </proc/{pid}/environ | grep GPUAAS_AGENT_VERSION"))?;
    ensure!(set == format!("GPUAAS_AGENT_VERSION={version}"), "the agent was started with {set}");
    Ok(format!("/proc/{pid}/environ: {set}; node show: agent {shown}"))
}

fn restart(node: &Node) -> anyhow::Result<()> {
    says(node, "systemctl daemon-reload && systemctl restart gpuaas-agent").map(drop)
}

fn tasks_of(world: &World<'_>, member: &Member) -> anyhow::Result<Vec<Task>> {
    world.platform.gpuaas(&["task", "list", "--node", &member.name])
}
