//! Interruptions in the middle of a deployment: of the agent, the node, the control plane, or by a full disk. Nothing is done twice.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use gpuaas_api_types::{Operation, OperationDetail};

use super::{
    command_output::{capture_script, expect_fault, run_script},
    environment::{Environment, Member},
    table::CellResult,
};
use crate::node::Node;

/// The step in which interruptions occur: it takes longest.
const START: &str = "server-1/start";
/// Downtime of the control plane: long enough to be more than a slow answer.
const DOWNTIME: Duration = Duration::from_secs(60);
/// File in which the stand-in counts its starts and stops; a real release does not have it.
const COUNTERS: &str = "/var/lib/stand-in/counters.jsonl";

/// The agent is killed.
pub(super) fn agent_killed(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let (member, operation) = deploy_until_start(environment, "agent-killed")?;
    let agent =
        |node: &Node| capture_script(node, "systemctl show --property MainPID,NRestarts --value gpuaas-agent | xargs");
    let before = agent(&member.node)?;
    capture_script(&member.node, "systemctl kill --kill-who=main --signal=KILL gpuaas-agent")?;
    let detail = environment.platform.wait_success(&operation)?;
    let now = agent(&member.node)?;
    ensure!(before != now && now.ends_with(" 1"), "the agent was not restarted once: {before}, then {now}");
    let attempts = attempts(&detail)?;
    let starts = starts(&member.node)?;
    ensure!(starts.unwrap_or(1) == 1, "the distribution was started {starts:?} times");
    environment.leave_running(member.name.clone(), member);
    CellResult::new(
        format!("running; {START} took {attempts} attempts, the distribution started once"),
        [format!("systemctl: agent's process and restarts {before}, then {now}{}", describe_starts(starts))],
    )
}

/// The node reboots.
pub(super) fn node_rebooted(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let (member, operation) = deploy_until_start(environment, "rebooted")?;
    let boot = |node: &Node| capture_script(node, "cat /proc/sys/kernel/random/boot_id");
    let before = boot(&member.node)?;
    member.node.reboot()?;
    let now = boot(&member.node)?;
    ensure!(before != now, "the boot ID did not change: {now}");
    let detail = environment.platform.wait_success(&operation)?;
    let (attempts, starts) = (attempts(&detail)?, starts(&member.node)?);
    // One start by the deployment and one by the boot.
    ensure!(starts.unwrap_or(2) <= 2, "the distribution was started {starts:?} times");
    environment.leave_running(member.name.clone(), member);
    CellResult::new(
        format!("running; {START} took {attempts} attempts"),
        [format!("boot_id: {before}, then {now}{}", describe_starts(starts))],
    )
}

/// The control plane is killed and restarts after a minute with the same database.
pub(super) fn control_plane_down(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let (member, operation) = deploy_until_start(environment, "away")?;
    let before = environment.platform.pid().context("the control plane does not run")?;
    environment.platform.kill()?;
    let began = Instant::now();
    // The minute is the fault itself: there is no event to wait for.
    thread::sleep(DOWNTIME / 2);
    let url = format!("{}/livez", environment.platform.url());
    let dialled = run_script(&member.node, &format!("curl -sSk --max-time 5 {url}"))?;
    let status = capture_script(&member.node, "systemctl show --property StatusText --value gpuaas-agent")?;
    ensure!(
        dialled.err.contains("curl: (7)") && status.starts_with("not connected"),
        "the node still reaches the control plane: {dialled:?}, {status}"
    );
    thread::sleep(DOWNTIME.saturating_sub(began.elapsed()));
    environment.platform.restart()?;
    let (now, downtime_s) =
        (environment.platform.pid().context("the control plane does not run")?, began.elapsed().as_secs());
    ensure!(before != now, "the control plane's PID did not change: {now}");
    let detail = environment.platform.wait_success(&operation)?;
    let (attempts, starts) = (attempts(&detail)?, starts(&member.node)?);
    ensure!(starts.unwrap_or(1) == 1, "the distribution was started {starts:?} times");
    environment.leave_running(member.name.clone(), member);
    CellResult::new(
        format!("running, {downtime_s} s of it without a control plane; {START} took {attempts} attempts"),
        [
            format!("control plane's process {before}, then {now}; in between, on the node: {}", dialled.err),
            format!("agent: {status}{}", describe_starts(starts)),
        ],
    )
}

/// The distribution's disk runs full after the preflight found enough space.
pub(super) fn disk_full(environment: &mut Environment) -> anyhow::Result<CellResult> {
    let member = environment.allocated("disk-full")?;
    let data = "/var/lib/rancher";
    // As large as the preflight requires for any release; a tmpfs takes memory only for what is written.
    capture_script(&member.node, &format!("mkdir -p {data} && mount -t tmpfs -o size=64g tmpfs {data}"))?;
    let workload = member.name.clone();
    let operation = environment.deploy(&workload, &member, &[])?;
    environment.until_step(&operation, "server-1/preflight", &["succeeded"], "")?;
    capture_script(&member.node, &format!("mount -o remount,size=1200m {data}"))?;
    let fill = format!("fallocate --length $(($(df --output=avail -B1 {data} | tail -n 1) - 16777216)) {data}/ballast");
    capture_script(&member.node, &fill)?;
    let stopped = environment.platform.wait_needs_attention(&operation)?;
    let outcome =
        expect_fault(stopped.operation.fault.as_ref(), "disk_full", "ask the operator to free disk space on")?;
    let seen = capture_script(
        &member.node,
        &format!("df --human-readable --output=size,used,avail,pcent,target {data} | tail -n 1"),
    )?;
    ensure!(seen.contains("99%") || seen.contains("98%") || seen.contains("100%"), "the disk is not full: {seen}");
    capture_script(&member.node, &format!("rm {data}/ballast && mount -o remount,size=64g {data}"))?;
    environment.platform.wait_success(&environment.platform.begin(&["workload", "resume", &workload])?)?;
    CellResult::new(format!("{outcome}; space freed, then resumed to success"), [format!("df: {seen}")])
}

/// Starts a deployment and waits until its server is being started.
fn deploy_until_start(environment: &mut Environment, tag: &str) -> anyhow::Result<(Member, Operation)> {
    let member = environment.allocated(tag)?;
    let operation = environment.deploy(&member.name, &member, &[])?;
    environment.until_step(&operation, START, &["running"], "waiting for rke2-server.service")?;
    Ok((member, operation))
}

fn attempts(detail: &OperationDetail) -> anyhow::Result<u32> {
    let step = detail.steps.iter().find(|step| step.key == START);
    Ok(step.with_context(|| format!("the operation has no step {START}"))?.attempts)
}

/// Number of times the distribution was started as a server; None for releases without counters.
fn starts(node: &Node) -> anyhow::Result<Option<usize>> {
    let counted = run_script(node, &format!("cat {COUNTERS}"))?;
    Ok((counted.status == Some(0)).then(|| counted.out.lines().filter(|line| line.contains("\"start\"")).count()))
}

fn describe_starts(starts: Option<usize>) -> String {
    starts.map(|starts| format!("; {COUNTERS}: {starts} start(s)")).unwrap_or_default()
}
