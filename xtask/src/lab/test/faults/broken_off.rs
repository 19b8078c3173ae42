//! Interruptions in the middle of a deployment: of the agent, the node, the control plane, or by a full disk. Nothing is done twice.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use gpuaas_api_types::{Operation, OperationDetail};

use super::{
    said::{fault, in_shell, says},
    table::Told,
    world::{Member, World},
};
use crate::lab::node::Node;

/// The step in which interruptions occur: it takes longest.
const START: &str = "server-1/start";
/// Downtime of the control plane: long enough to be more than a slow answer.
const AWAY: Duration = Duration::from_secs(60);
/// File in which the stand-in counts its starts and stops; a real release does not have it.
const COUNTERS: &str = "/var/lib/stand-in/counters.jsonl";

/// The agent is killed.
pub(super) fn agent_killed(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (member, operation) = in_the_middle(world, "agent-killed")?;
    let agent = |node: &Node| says(node, "systemctl show --property MainPID,NRestarts --value gpuaas-agent | xargs");
    let before = agent(&member.node)?;
    says(&member.node, "systemctl kill --kill-who=main --signal=KILL gpuaas-agent")?;
    let detail = world.platform.succeeds(&operation)?;
    let now = agent(&member.node)?;
    ensure!(before != now && now.ends_with(" 1"), "the agent was {before}, and is {now}");
    let attempts = attempts(&detail)?;
    let starts = starts(&member.node)?;
    ensure!(starts.unwrap_or(1) == 1, "the distribution was started {starts:?} times");
    world.leave_running(member.name.clone(), member);
    Told::new(
        format!("running; {START} took {attempts} attempts, the distribution started once"),
        [format!("systemctl: agent's process and restarts {before}, then {now}{}", counted(starts))],
    )
}

/// The node reboots.
pub(super) fn node_rebooted(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (member, operation) = in_the_middle(world, "rebooted")?;
    let boot = |node: &Node| says(node, "cat /proc/sys/kernel/random/boot_id");
    let before = boot(&member.node)?;
    member.node.reboot()?;
    let now = boot(&member.node)?;
    ensure!(before != now, "it is the same boot: {now}");
    let detail = world.platform.succeeds(&operation)?;
    let (attempts, starts) = (attempts(&detail)?, starts(&member.node)?);
    // One start by the deployment and one by the boot.
    ensure!(starts.unwrap_or(2) <= 2, "the distribution was started {starts:?} times");
    world.leave_running(member.name.clone(), member);
    Told::new(
        format!("running; {START} took {attempts} attempts"),
        [format!("boot_id: {before}, then {now}{}", counted(starts))],
    )
}

/// The control plane is killed and restarts after a minute with the same database.
pub(super) fn control_plane_away(world: &mut World<'_>) -> anyhow::Result<Told> {
    let (member, operation) = in_the_middle(world, "away")?;
    let before = world.platform.pid().context("it runs")?;
    world.platform.kill()?;
    let began = Instant::now();
    // The minute is the fault itself: there is no event to wait for.
    thread::sleep(AWAY / 2);
    let url = format!("{}/livez", world.platform.url());
    let dialled = in_shell(&member.node, &format!("curl -sSk --max-time 5 {url}"))?;
    let status = says(&member.node, "systemctl show --property StatusText --value gpuaas-agent")?;
    ensure!(dialled.err.contains("curl: (7)") && status.starts_with("not connected"), "{dialled:?}, {status}");
    thread::sleep(AWAY.saturating_sub(began.elapsed()));
    world.platform.again()?;
    let (now, away) = (world.platform.pid().context("it runs")?, began.elapsed().as_secs());
    ensure!(before != now, "it is the same process: {now}");
    let detail = world.platform.succeeds(&operation)?;
    let (attempts, starts) = (attempts(&detail)?, starts(&member.node)?);
    ensure!(starts.unwrap_or(1) == 1, "the distribution was started {starts:?} times");
    world.leave_running(member.name.clone(), member);
    Told::new(
        format!("running, {away} s of it without a control plane; {START} took {attempts} attempts"),
        [
            format!("control plane's process {before}, then {now}; in between, on the node: {}", dialled.err),
            format!("agent: {status}{}", counted(starts)),
        ],
    )
}

/// The distribution's disk runs full after the preflight found enough space.
pub(super) fn disk_full(world: &mut World<'_>) -> anyhow::Result<Told> {
    let member = world.allocated("disk-full")?;
    let data = "/var/lib/rancher";
    // As large as the preflight requires for any release; a tmpfs takes memory only for what is written.
    says(&member.node, &format!("mkdir -p {data} && mount -t tmpfs -o size=64g tmpfs {data}"))?;
    let workload = member.name.clone();
    let operation = world.deploy(&workload, &member, &[])?;
    world.until_step(&operation, "server-1/preflight", &["succeeded"], "")?;
    says(&member.node, &format!("mount -o remount,size=1200m {data}"))?;
    let fill = format!("fallocate --length $(($(df --output=avail -B1 {data} | tail -n 1) - 16777216)) {data}/ballast");
    says(&member.node, &fill)?;
    let stopped = world.platform.needs_attention(&operation)?;
    let outcome = fault(stopped.operation.fault.as_ref(), "disk_full", "make room on the node's disk, then resume")?;
    let seen =
        says(&member.node, &format!("df --human-readable --output=size,used,avail,pcent,target {data} | tail -n 1"))?;
    ensure!(seen.contains("99%") || seen.contains("98%") || seen.contains("100%"), "it is not full: {seen}");
    says(&member.node, &format!("rm {data}/ballast && mount -o remount,size=64g {data}"))?;
    world.platform.succeeds(&world.platform.begin(&["workload", "resume", &workload])?)?;
    Told::new(format!("{outcome}; room made, resumed to its end"), [format!("df: {seen}")])
}

/// Starts a deployment and waits until its server is being started.
fn in_the_middle(world: &mut World<'_>, tag: &str) -> anyhow::Result<(Member, Operation)> {
    let member = world.allocated(tag)?;
    let operation = world.deploy(&member.name, &member, &[])?;
    world.until_step(&operation, START, &["running"], "waiting for rke2-server.service")?;
    Ok((member, operation))
}

fn attempts(detail: &OperationDetail) -> anyhow::Result<u32> {
    let step = detail.steps.iter().find(|step| step.key == START);
    Ok(step.with_context(|| format!("there is no step {START}"))?.attempts)
}

/// Number of times the distribution was started as a server; None for releases without counters.
fn starts(node: &Node) -> anyhow::Result<Option<usize>> {
    let counted = in_shell(node, &format!("cat {COUNTERS}"))?;
    Ok((counted.status == Some(0)).then(|| counted.out.lines().filter(|line| line.contains("\"start\"")).count()))
}

fn counted(starts: Option<usize>) -> String {
    starts.map(|starts| format!("; {COUNTERS}: {starts} start(s)")).unwrap_or_default()
}
