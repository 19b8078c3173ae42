//! Losses on sandbox nodes, and the time until the API shows them.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_api_types::Event;
use rustix::process::{Pid, Signal, kill_process};

use super::cluster::{AGENT_NODE, Cluster, wait_for};
use crate::bench::control_plane::Place;

/// Variable in the environment of every process of a sandbox: the folder of its node.
const ROOT_VARIABLE: &str = "GPUAAS_SANDBOX_ROOT=";

/// Times until a node that falls silent is shown as lost.
pub(super) struct Silence {
    pub(super) stale_after: Duration,
    pub(super) unreachable_after: Duration,
}

/// Kills the main process of the agent's service; returns when the member's health is seen to change. Waits until the service is back.
pub(super) async fn kill_service(cluster: &Cluster, place: &Place) -> anyhow::Result<Duration> {
    let member = cluster.member_on(AGENT_NODE).await?;
    let mut events = cluster.events_of_project().await?;
    let pid = process(
        &place.folder_of_node(AGENT_NODE)?,
        |words| matches!(words, [program, role, ..] if program.ends_with("/bin/rke2") && *role == "agent"),
    )?;
    let began = Instant::now();
    kill_process(pid, Signal::KILL).context("killing the service")?;
    wait_for(&mut events, "the killed service", is_health(&member, false)).await?;
    let seen_after = began.elapsed();
    wait_for(&mut events, "the return of the service", is_health(&member, true)).await?;
    Ok(seen_after)
}

/// Stops the agent of the node with SIGSTOP, so that its connection stays open and silent, until the node is shown as unreachable. Waits
/// until its member is healthy again.
pub(super) async fn stop_agent(cluster: &Cluster, place: &Place) -> anyhow::Result<Silence> {
    let member = cluster.member_on(AGENT_NODE).await?;
    let (mut of_members, mut events) = (cluster.events_of_project().await?, cluster.events_of_platform().await?);
    let pid = process(
        &place.folder_of_node(AGENT_NODE)?,
        |words| matches!(words, [program, ..] if program.ends_with("/gpuaas-agent")),
    )?;
    let began = Instant::now();
    let stopped = Stopped::new(pid)?;
    wait_for(&mut events, "the end of the silent connection", is_connectivity("stale")).await?;
    let stale_after = began.elapsed();
    wait_for(&mut events, "the loss of the silent node", is_connectivity("unreachable")).await?;
    let unreachable_after = began.elapsed();
    drop(stopped);
    wait_for(&mut events, "the return of the node", is_connectivity("connected")).await?;
    wait_for(&mut of_members, "the return of its member", is_health(&member, true)).await?;
    Ok(Silence { stale_after, unreachable_after })
}

/// Returns whether an event shows the member as healthy, or as anything else.
fn is_health(member: &str, healthy: bool) -> impl Fn(&Event) -> bool {
    move |event| {
        let is_its = event.kind == "member.changed" && event.data["member"] == member;
        is_its && (event.data["health"] == "healthy") == healthy
    }
}

/// Returns whether an event shows the node with this connectivity.
fn is_connectivity(wanted: &'static str) -> impl Fn(&Event) -> bool {
    move |event| {
        let is_its = event.kind == "node.connectivity_changed" && event.data["name"] == AGENT_NODE;
        is_its && event.data["connectivity"] == wanted
    }
}

/// A stopped process; it continues when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> anyhow::Result<Self> {
        kill_process(pid, Signal::STOP).context("stopping the agent")?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails if the process has ended, which is fine.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// PID of the process of a sandbox whose command line is the wanted one.
fn process(root: &Utf8Path, is_it: impl Fn(&[&str]) -> bool) -> anyhow::Result<Pid> {
    let root = root.canonicalize_utf8().with_context(|| root.to_string())?;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let (command, environment) = (read("cmdline"), read("environ"));
        let (command, environment) = (String::from_utf8_lossy(&command), String::from_utf8_lossy(&environment));
        let of = environment.split('\0').find_map(|variable| variable.strip_prefix(ROOT_VARIABLE));
        let is_of_sandbox = of.is_some_and(|of| Utf8PathBuf::from(of).canonicalize_utf8().is_ok_and(|of| of == root));
        let words: Vec<&str> = command.trim_end_matches('\0').split('\0').collect();
        if is_of_sandbox && is_it(&words) {
            return Ok(pid);
        }
    }
    anyhow::bail!("the wanted process does not run in {root}")
}
