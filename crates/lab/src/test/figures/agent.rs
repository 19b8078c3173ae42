//! Resources of the agent: memory after many tasks, and CPU time while idle.

use std::{thread, time::Duration};

use anyhow::Context;
use gpuaas_api_types::Ping;

use super::Figure;
use crate::{
    node::Node,
    test::{control_plane::ControlPlane, machines::agent_of},
};

/// Tasks before the memory measurement.
const TASKS: u32 = 10_000;
/// Length of the idle measurement.
const IDLE: Duration = Duration::from_secs(60);
/// Wait before it, until work caused by the enrollment has ended.
const SETTLING: Duration = Duration::from_secs(5);
const MEMORY_MB: f64 = 12.0;
const IDLE_PERCENT: f64 = 0.2;

/// Measures CPU time while the agent is connected and receives no requests.
pub(super) fn idle(node: &Node) -> anyhow::Result<[Figure; 1]> {
    let agent = agent_of(node)?;
    // Elapsed time is the measured quantity, so a sleep is right here.
    thread::sleep(SETTLING);
    let ticks_per_second: f64 = node.capture(&["getconf", "CLK_TCK"])?.parse()?;
    let before = ticks(node, agent)?;
    thread::sleep(IDLE);
    let used = ticks(node, agent)?.saturating_sub(before) as f64 / ticks_per_second;
    Ok([Figure::of("agent, idle, of one processor", "%", IDLE_PERCENT, vec![used / IDLE.as_secs_f64() * 100.0])])
}

/// Measures memory after many no-op tasks, each signed, sent, recorded and answered.
pub(super) fn after_tasks(platform: &ControlPlane, node: &Node) -> anyhow::Result<[Figure; 1]> {
    let agent = agent_of(node)?;
    let count = TASKS.to_string();
    let pings: Vec<Ping> = platform.gpuaas(&["node", "ping", node.name().as_str(), "--count", &count])?;
    anyhow::ensure!(pings.len() == TASKS as usize, "{} of {TASKS} pings were answered", pings.len());
    anyhow::ensure!(agent_of(node)? == agent, "the agent was restarted meanwhile");
    let status = node.capture(&["cat", &format!("/proc/{agent}/status")])?;
    Ok([Figure::of("agent, after 10,000 tasks", "MB", MEMORY_MB, vec![of_status(&status, "VmRSS:")?])])
}

/// A size from `/proc/PID/status`, in units of 10⁶ bytes.
pub(super) fn of_status(status: &str, name: &str) -> anyhow::Result<f64> {
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("the status has no {name}"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("parsing a number of KiB")?;
    Ok(kib * 1_024.0 / 1e6)
}

/// CPU time of a process so far, user and system, in clock ticks.
fn ticks(node: &Node, pid: u32) -> anyhow::Result<u64> {
    ticks_in(&node.capture(&["cat", &format!("/proc/{pid}/stat")])?)
}

fn ticks_in(stat: &str) -> anyhow::Result<u64> {
    // The process name, in parentheses, may contain spaces.
    let behind_name = stat.rsplit_once(')').context("the stat file has no name")?.1;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let field =
        |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).context("the stat file has no CPU time");
    // Fields 14 and 15, counted from 1; the first one after the name is field 3.
    Ok(field(11)? + field(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read_as_the_kernel_writes_them() {
        let stat = "812 (gpuaas (agent)) S 1 812 812 0 -1 4194560 900 0 0 0 37 5 0 0 20 0 1 0 1234 9000000 2000 18446744073709551615";
        assert_eq!(ticks_in(stat).expect("a valid line"), 42);
        assert!(ticks_in("812").is_err());
        let status = "Name:\tgpuaas-agent\nVmHWM:\t   12000 kB\nVmRSS:\t   10000 kB\n";
        assert!((of_status(status, "VmRSS:").expect("the size is listed") - 10.24).abs() < 1e-9);
        assert!(of_status(status, "VmSwap:").is_err());
    }
}
