//! A unit's journal, read with the host's own `journalctl`.
//!
//! The journal's files belong to systemd: their format grows (compression, compact entries) with the host's version, and only the host's
//! own reader is sure to support it. The library that reads them would have to be linked at build time, and this agent is linked
//! statically. So `journalctl` runs for as long as a reader reads; with `--follow` the journal itself wakes it for new lines.
//!
//! Guarantees: no polling; a line of any length takes bounded memory; the program ends with its reader.
//!
//! Absent: fields other than message, time and cursor, and journals of other hosts.

use std::{process::Stdio, time::Duration};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::{
    io::{AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

use super::export::next_line;
use crate::{
    error::HostError,
    journal::{JournalFrom, JournalLine},
    program::spawn,
};

const PROGRAM: &str = "/usr/bin/journalctl";
/// Longest wait for `journalctl --sync`, which makes the journal process pending messages and write them to the disk.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of `journalctl`'s error output that are logged.
const STDERR_BYTES_MAX: u64 = 1_024;

/// Returns a unit's lines; with `follow`, also new ones. Without it, syncs the journal first, so that everything written before the call is
/// returned, including the last lines of a failed unit.
pub(super) async fn read(
    unit: &str,
    from: &JournalFrom,
    follow: bool,
) -> Result<BoxStream<'static, JournalLine>, HostError> {
    if !follow {
        sync().await?;
    }
    match from {
        // `journalctl` would drop lines that are written before it has found the journal's end, and the caller asked for all new ones.
        JournalFrom::Tail(0) if follow => run(unit, &newest(unit).await?, follow),
        from => run(unit, from, follow),
    }
}

/// Returns the position after the newest line.
async fn newest(unit: &str) -> Result<JournalFrom, HostError> {
    sync().await?;
    let newest = run(unit, &JournalFrom::Tail(1), false)?.next().await;
    Ok(newest.map_or(JournalFrom::Start, |line| JournalFrom::After(line.cursor)))
}

fn run(unit: &str, from: &JournalFrom, follow: bool) -> Result<BoxStream<'static, JournalLine>, HostError> {
    let mut command = Command::new(PROGRAM);
    command
        .args(["--output=export", "--output-fields=MESSAGE", "--no-pager", "--quiet"])
        .arg(format!("--unit={unit}"))
        .args(range_arguments(from))
        .args(follow.then_some("--follow"))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = spawn(&mut command).map_err(|error| fail(error.to_string()))?;
    let stdout = child.stdout.take().ok_or_else(|| fail("standard output is not captured".to_owned()))?;
    let reading = Reading { unit: unit.to_owned(), child, stdout: BufReader::new(stdout) };
    Ok(stream::unfold(reading, |mut reading| async move {
        let line = reading.next().await?;
        Some((line, reading))
    })
    .boxed())
}

/// Makes the journal process the messages that wait for it.
async fn sync() -> Result<(), HostError> {
    let mut command = Command::new(PROGRAM);
    command
        .arg("--sync")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = spawn(&mut command).map_err(|error| fail(error.to_string()))?;
    match tokio::time::timeout(SYNC_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) if status.success() => {}
        // The lines that it has processed by now are returned all the same.
        ended => tracing::warn!(?ended, "journalctl --sync failed"),
    }
    Ok(())
}

fn fail(message: String) -> HostError {
    HostError::Program { program: PROGRAM.into(), message }
}

/// Returns `journalctl`'s arguments for the position. Without them, `--follow` starts with the last ten lines.
fn range_arguments(from: &JournalFrom) -> Vec<String> {
    /// The largest number of lines that `journalctl` accepts.
    const LINES_MAX: u32 = i32::MAX.unsigned_abs();
    match from {
        JournalFrom::Start => vec!["--no-tail".to_owned()],
        JournalFrom::After(cursor) => vec!["--no-tail".to_owned(), format!("--after-cursor={}", cursor.as_str())],
        JournalFrom::Since(at) => {
            let (seconds, millis) = (at.as_millis().div_euclid(1_000), at.as_millis().rem_euclid(1_000));
            vec!["--no-tail".to_owned(), format!("--since=@{seconds}.{millis:03}")]
        }
        JournalFrom::Tail(lines) => vec![format!("--lines={}", lines.min(&LINES_MAX))],
    }
}

struct Reading {
    unit: String,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Reading {
    async fn next(&mut self) -> Option<JournalLine> {
        match next_line(&mut self.stdout).await {
            Ok(Some(line)) => return Some(line),
            Ok(None) => self.finish().await,
            Err(error) => tracing::warn!(unit = self.unit, %error, "reading a journal failed"),
        }
        None
    }

    /// Waits for the program to exit, and logs its failure.
    async fn finish(&mut self) {
        let mut complaint = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            // An unreadable complaint is not logged; the exit status is.
            let _ = stderr.take(STDERR_BYTES_MAX).read_to_end(&mut complaint).await;
        }
        match self.child.wait().await {
            Ok(status) if status.success() => {}
            ended => {
                let complaint = String::from_utf8_lossy(&complaint);
                tracing::warn!(unit = self.unit, ?ended, complaint = complaint.trim(), "journalctl failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Timestamp;

    use super::*;
    use crate::journal::Cursor;

    #[test]
    fn range_becomes_journalctl_arguments() {
        let arguments = |from| range_arguments(&from).join(" ");
        assert_eq!(arguments(JournalFrom::Start), "--no-tail");
        assert_eq!(arguments(JournalFrom::After(Cursor::new("s=1;i=2"))), "--no-tail --after-cursor=s=1;i=2");
        assert_eq!(
            arguments(JournalFrom::Since(Timestamp::from_millis(1_700_000_000_007))),
            "--no-tail --since=@1700000000.007"
        );
        assert_eq!(arguments(JournalFrom::Since(Timestamp::from_millis(-1))), "--no-tail --since=@-1.999");
        assert_eq!(
            (arguments(JournalFrom::Tail(0)), arguments(JournalFrom::Tail(u32::MAX))),
            ("--lines=0".into(), "--lines=2147483647".into())
        );
    }
}
