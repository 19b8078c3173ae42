//! Kills processes and waits for their end.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

/// Longest wait for killed processes; only those in an uninterruptible system call need more than a moment.
const END_MAX: Duration = Duration::from_secs(30);

/// Kills all processes that `remaining` returns until it returns none; processes forked meanwhile are killed in the next round.
pub(super) fn end_all(remaining: impl Fn() -> anyhow::Result<Vec<i32>>) -> anyhow::Result<()> {
    let deadline = Instant::now() + END_MAX;
    loop {
        let pids = remaining()?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("these processes do not end: {pids:?}");
        }
        let opened: Vec<OwnedFd> = pids.iter().filter_map(|pid| open(*pid)).collect();
        for process in &opened {
            match pidfd_send_signal(process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error).context("killing a process"),
            }
        }
        for process in &opened {
            await_end(process, deadline)?;
        }
    }
}

/// Opens a pidfd; None if the process no longer exists.
fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn await_end(process: &OwnedFd, deadline: Instant) -> anyhow::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).context("computing the remaining wait")?;
    let mut waited = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut waited, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("waiting for a process to end"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_killed_process_has_ended_when_the_call_returns() {
        let mut child = Command::new("sleep").arg("300").spawn().expect("sleep runs");
        let pid = i32::try_from(child.id()).expect("a pid");
        let calls = std::cell::Cell::new(0);
        end_all(|| {
            calls.set(calls.get() + 1);
            Ok(if calls.get() == 1 { vec![pid] } else { Vec::new() })
        })
        .expect("the process ends");
        // `try_wait` succeeds at once: the child is a zombie by now.
        assert!(child.try_wait().expect("the child can be waited for").is_some());
    }
}
