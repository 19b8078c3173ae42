//! Counts a process's syscalls with strace.

use std::{
    fs::File,
    io::{ErrorKind, Read, Seek},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::figures::format_value;

/// Syscalls that reflect the work of the store; printed even if their count is zero.
const OF_INTEREST: [&str; 5] = ["futex", "epoll_wait", "pwrite64", "fsync", "fdatasync"];
/// Number of other syscalls that are printed, most frequent first.
const OTHERS: usize = 10;
/// Longest time for strace to attach to all threads.
const ATTACH: Duration = Duration::from_secs(1);

/// A counting strace.
pub(super) struct Tracer {
    strace: Child,
    summary: File,
}

/// Calls by name, and the number of tasks that caused them.
pub(super) struct Trace {
    calls: Vec<(String, u64)>,
    tasks: usize,
}

impl Tracer {
    /// Attaches to a process and all its threads; `None`, with a message, if strace is not installed.
    pub(super) async fn attach(pid: i32) -> anyhow::Result<Option<Self>> {
        let summary = tempfile::tempfile()?;
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-p", &pid.to_string()]).stderr(summary.try_clone()?).stdin(Stdio::null());
        let mut strace = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("strace is not installed: no syscalls are counted. Install the package `strace`.");
                return Ok(None);
            }
            spawned => spawned.context("starting strace")?,
        };
        tokio::time::sleep(ATTACH).await;
        if let Some(status) = strace.try_wait()? {
            anyhow::bail!("strace cannot attach to process {pid} ({status}): {}", text(summary)?.trim());
        }
        Ok(Some(Self { strace, summary }))
    }

    /// Detaches and returns the calls made while `tasks` tasks ran.
    pub(super) fn finish(mut self, tasks: usize) -> anyhow::Result<Trace> {
        kill_process(Pid::from_child(&self.strace), Signal::INT).context("ending strace")?;
        self.strace.wait().context("waiting for strace")?;
        let calls = calls(&text(self.summary)?);
        ensure!(!calls.is_empty(), "strace printed no summary");
        Ok(Trace { calls, tasks })
    }
}

impl Trace {
    pub(super) fn print(&self) {
        let each = |calls: u64| calls as f64 / self.tasks.max(1) as f64;
        let total: u64 = self.calls.iter().map(|(_, calls)| calls).sum();
        println!("  {:<20}{:>10}   (of {} tasks)", "all", format_value(each(total)), self.tasks);
        for name in OF_INTEREST {
            let calls = self.calls.iter().find(|(known, _)| known == name).map_or(0, |(_, calls)| *calls);
            println!("  {name:<20}{:>10}", format_value(each(calls)));
        }
        let others = self.calls.iter().filter(|(name, _)| !OF_INTEREST.contains(&name.as_str()));
        for (name, calls) in others.take(OTHERS) {
            println!("  {name:<20}{:>10}", format_value(each(*calls)));
        }
    }
}

fn text(mut file: File) -> anyhow::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Parses strace's summary into calls by name, most frequent first: `% time, seconds, usecs/call, calls, errors (may be absent), syscall`.
fn calls(summary: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.first()?.parse::<f64>().ok()?;
        let name = fields.last().filter(|name| **name != "total")?;
        Some(((*name).to_owned(), fields.get(3)?.parse().ok()?))
    };
    let mut calls: Vec<(String, u64)> = summary.lines().filter_map(row).collect();
    calls.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_with_and_without_errors_and_without_the_total() {
        let summary = "strace: Process 7 attached with 9 threads\n\
            % time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            81.30    1.000000         100        12         4 futex\n \
            18.70    0.200000          10        20           fdatasync\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    1.200000          37        32         4 total\n";
        assert_eq!(calls(summary), [("fdatasync".to_owned(), 20), ("futex".to_owned(), 12)]);
    }
}
