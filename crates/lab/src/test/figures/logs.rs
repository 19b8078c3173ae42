//! A journal that grows by 10,000 lines per second, followed through the platform: lost lines, and the agent's resources meanwhile.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use super::{Figure, WORKLOAD, agent::of_status};
use crate::{
    node::Node,
    test::{command_output::capture_script, control_plane::ControlPlane, machines::agent_of},
};

/// The member whose unit produces the lines, and the unit.
const MEMBER: &str = "agent-1";
const UNIT: &str = "rke2-agent.service";
/// Total number of lines, and lines per second.
const LINES: u64 = 200_000;
const RATE: u64 = 10_000;
/// Prefix of every line.
const MARK: &str = "gpuaas-figures ";
const MEMORY_MB: f64 = 30.0;
/// Longest wait for the last line.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Writes numbered lines as a process of the unit: journald attributes a line by the cgroup of its writer.
const WRITER: &str = r#"set -eu
    group=$(systemctl show --property ControlGroup --value "$1")
    for tree in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        if [ -e "$tree$group/cgroup.procs" ]; then echo $$ >"$tree$group/cgroup.procs"; fi
    done
    write() {
        began=${EPOCHREALTIME/./} done=0 batch=$(($2 / 20))
        while [ $done -lt $1 ]; do
            seq --format="$3%.0f of a journal that a client follows, as long as typical lines." $((done + 1)) $((done + batch))
            done=$((done + batch))
            left=$((began + done * 1000000 / $2 - ${EPOCHREALTIME/./}))
            if [ $left -gt 0 ]; then sleep 0.$(printf %06d $((left % 1000000))); fi
        done
        echo "$((${EPOCHREALTIME/./} - began))" >&2
    }
    write "$2" "$3" "$4" | systemd-cat --identifier=figures"#;

/// Disables journald's own rate limit.
const UNLIMITED: &str = "mkdir -p /etc/systemd/journald.conf.d
    printf '[Journal]\\nRateLimitIntervalSec=0\\n' >/etc/systemd/journald.conf.d/figures.conf
    systemctl restart systemd-journald";

/// Follows, through the platform, the lines that are written on the node.
pub(super) fn measure(platform: &ControlPlane, node: &Node) -> anyhow::Result<[Figure; 4]> {
    capture_script(node, UNLIMITED)?;
    let agent = agent_of(node)?;
    // Resets the peak memory.
    capture_script(node, &format!("echo 5 >/proc/{agent}/clear_refs"))?;
    let words = ["workload", "logs", WORKLOAD, "--member", MEMBER, "--follow", "--tail", "1"];
    let mut follow = platform.gpuaas_command(&words);
    let mut follower = follow.stdout(Stdio::piped()).spawn().context("gpuaas workload logs")?;
    let mut lines = BufReader::new(follower.stdout.take().context("stdout is not piped")?).lines();
    // The first line is an old one; once it arrives, the command follows.
    lines.next().context("no line of the journal arrived")??;
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut seen = Seen::default();
        lines.map_while(Result::ok).take_while(|line| seen.take(line) < LINES).for_each(drop);
        sender.send(seen)
    });
    let began = Instant::now();
    let mut writer =
        node.command(&["bash", "-c", WRITER, "writer", UNIT, &LINES.to_string(), &RATE.to_string(), MARK])?;
    let written = writer.stdin(Stdio::null()).output().context("running the writer")?;
    let wrote_us = String::from_utf8_lossy(&written.stderr).trim().to_owned();
    let wrote_us: f64 = wrote_us.parse().with_context(|| format!("parsing the writer's duration: {wrote_us}"))?;
    let on_time = ended.recv_timeout(LATE_MAX);
    let took = began.elapsed();
    follower.kill().and_then(|()| follower.wait()).context("ending gpuaas workload logs")?;
    // After the follower's end its output is closed, so the thread ends too.
    let seen = on_time.or_else(|_| ended.recv()).context("the reader ended without a result")?;
    ensure!(agent_of(node)? == agent, "the agent was restarted meanwhile");
    let status = node.capture(&["cat", &format!("/proc/{agent}/status")])?;
    let lost = LINES - seen.lines.min(LINES) + seen.out_of_order;
    Ok([
        Figure::of("journal written, lines a second", "", None, vec![LINES as f64 / wrote_us * 1e6]),
        Figure::of("journal followed, lines a second", "", None, vec![seen.lines as f64 / took.as_secs_f64()]),
        Figure::of("journal followed, lines lost or out of order", "", 0.0, vec![lost as f64]),
        Figure::of("agent, while its journal is followed, peak", "MB", MEMORY_MB, vec![of_status(&status, "VmHWM:")?]),
    ])
}

/// Statistics of the received lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    lines: u64,
    last: u64,
    /// Lines that did not follow their predecessor.
    out_of_order: u64,
}

impl Seen {
    /// Counts a line; returns the highest number so far.
    fn take(&mut self, line: &str) -> u64 {
        let number = line.split_once(MARK).and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        match number {
            Some(number) if number > self.last => (self.lines, self.last) = (self.lines + 1, number),
            Some(_) => self.out_of_order += 1,
            None => {}
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_duplicate_and_late_lines_are_counted() {
        let mut seen = Seen::default();
        for number in [1, 2, 4, 3, 4, 5] {
            seen.take(&format!("{MARK}{number} of a journal"));
        }
        seen.take("something else");
        assert_eq!(seen, Seen { lines: 4, last: 5, out_of_order: 2 });
    }
}
