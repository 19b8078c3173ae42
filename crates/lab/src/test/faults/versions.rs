//! Agents of other versions than the control plane. The schemas that an agent lists decide in which form it receives tasks, or that it
//! receives none.
//!
//! The agent simulates the version: test programs have the feature `other-versions`, and a drop-in of the unit sets the version.

use std::fs;

use anyhow::{Context, ensure};
use gpuaas_api_types::Task;
use serde_json::Value;

use super::{
    WAIT_MAX, agent_of,
    command_output::{capture_script, check_error_page},
    environment::{Environment, Member},
    table::CellResult,
};
use crate::node::Node;

/// A task with more than one version of its parameters, sent at enrollment and at allocation.
const VERSIONED_TASK: &str = "host.inspect";
/// The drop-in that sets the version.
const DROP_IN: &str = "etc/systemd/system/gpuaas-agent.service.d/version.conf";

/// One version older: receives tasks in the older form.
pub(super) fn older(environment: &mut Environment) -> anyhow::Result<CellResult> {
    deployed(environment, "older", "0.0.9", |schema, newest| schema == 1 && newest > 1)
}

/// One version newer: receives tasks in the newest form that the control plane knows.
pub(super) fn newer(environment: &mut Environment) -> anyhow::Result<CellResult> {
    deployed(environment, "newer", "0.2.0", |schema, newest| schema == newest && newest > 1)
}

fn deployed(
    environment: &mut Environment,
    version: &str,
    shown: &str,
    fits: fn(u32, u32) -> bool,
) -> anyhow::Result<CellResult> {
    let member = environment.enrolled(version)?;
    let earlier = environment.platform.until("the node is inspected", WAIT_MAX, || {
        let tasks = tasks_of(environment, &member)?;
        Ok(tasks.iter().any(|task| task.task_type == VERSIONED_TASK && task.state == "succeeded").then_some(tasks))
    })?;
    let newest =
        earlier.iter().filter(|task| task.task_type == VERSIONED_TASK).map(|task| task.schema).max().unwrap_or(0);
    let proof = run_as(environment, &member, version, shown)?;
    environment.platform.allocate(&member.name)?;
    let workload = member.name.clone();
    environment.platform.wait_success(&environment.deploy(&workload, &member, &[])?)?;
    let mut sent = tasks_of(environment, &member)?;
    sent.retain(|task| !earlier.iter().any(|known| known.id == task.id));
    let inspected: Vec<u32> =
        sent.iter().filter(|task| task.task_type == VERSIONED_TASK).map(|task| task.schema).collect();
    let fit = !inspected.is_empty() && inspected.iter().all(|&schema| fits(schema, newest));
    ensure!(fit, "{VERSIONED_TASK} was sent in the schemas {inspected:?}; the newest is {newest}");
    let outcome = format!(
        "deployed with {} tasks; {VERSIONED_TASK} was sent in schema {}, and to an agent of this version in {newest}",
        sent.len(),
        inspected[0]
    );
    environment.leave_running(workload, member);
    CellResult::new(outcome, [proof])
}

/// Refused before anything changes; after the upgrade, a dry run of the deployment is accepted.
pub(super) fn too_old(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let member = environment.allocated("incompatible")?;
    let proof = run_as(environment, &member, "incompatible", "0.0.1")?;
    let before = tasks_of(environment, &member)?.len();
    let words = ["workload", "deploy", "rke2", "--name", &member.name, "--server", &member.name];
    let output = environment.platform.refused(&words)?;
    let outcome = output.expect_refusal("placement_invalid", 4, "upgrade the agent of that node")?;
    ensure!(output.err.contains("agent_too_old"), "the error does not name agent_too_old: {}", output.err);
    check_error_page("agent_too_old")?;
    ensure!(tasks_of(environment, &member)?.len() == before, "a task was sent to the node");
    fs::remove_file(member.node.root().join(DROP_IN))?;
    restart(&member.node)?;
    environment.platform.until("the upgraded agent is connected", WAIT_MAX, || {
        let shown = environment.platform.show_node(&member.name)?;
        Ok((shown.connectivity == "connected" && shown.agent_version.as_deref() != Some("0.0.1")).then_some(()))
    })?;
    environment.platform.gpuaas::<Value>(&[&words[..], &["--dry-run"]].concat())?;
    CellResult::new(format!("agent_too_old in {outcome}; upgraded, the deployment is accepted"), [proof])
}

/// Makes the node's agent report this version; returns the proof from the node's own files.
fn run_as(environment: &Environment, member: &Member, version: &str, shown: &str) -> anyhow::Result<String> {
    let path = member.node.root().join(DROP_IN);
    fs::create_dir_all(path.parent().context("the drop-in has no folder")?)?;
    fs::write(&path, format!("[Service]\nEnvironment=GPUAAS_AGENT_VERSION={version}\n"))?;
    restart(&member.node)?;
    environment.platform.until(&format!("an agent {shown} is connected"), WAIT_MAX, || {
        let now = environment.platform.show_node(&member.name)?;
        Ok((now.connectivity == "connected" && now.agent_version.as_deref() == Some(shown)).then_some(()))
    })?;
    let pid = agent_of(&member.node)?;
    let set =
        capture_script(&member.node, &format!("tr '\\0' '\\n' </proc/{pid}/environ | grep GPUAAS_AGENT_VERSION"))?;
    ensure!(set == format!("GPUAAS_AGENT_VERSION={version}"), "the agent was started with {set}");
    Ok(format!("/proc/{pid}/environ: {set}; node show: agent {shown}"))
}

fn restart(node: &Node) -> anyhow::Result<()> {
    capture_script(node, "systemctl daemon-reload && systemctl restart gpuaas-agent").map(drop)
}

fn tasks_of(environment: &Environment, member: &Member) -> anyhow::Result<Vec<Task>> {
    environment.platform.gpuaas(&["task", "list", "--node", &member.name])
}
