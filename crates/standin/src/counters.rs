//! Appends the stand-in's events (`start`, `ready`, `stop`, `exit`) to a file that survives an uninstall.
//!
//! Each event is one JSON line, so that tests can count starts independently of the platform's own reports.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use serde_json::json;

use crate::paths::{self, HostPaths};

/// The counters' file, outside the folders that `rke2-uninstall.sh` removes.
pub(crate) const FILE: &str = "/var/lib/stand-in/counters.jsonl";

/// Appends one line. A failure is logged and otherwise ignored.
pub(crate) fn record(paths: &HostPaths, role: &str, event: &str) {
    let file = paths.at(FILE);
    let line = json!({
        "time_ms": jiff::Timestamp::now().as_millisecond(),
        "pid": std::process::id(),
        "role": role,
        "event": event,
    });
    let appended = file.parent().map_or(Ok(()), |dir| paths::make_dir(dir, 0o755)).and_then(|()| {
        let mut out = std::fs::OpenOptions::new().create(true).append(true).mode(0o644).open(&file)?;
        out.write_all(format!("{line}\n").as_bytes())
    });
    if let Err(error) = appended {
        crate::log::warning!("Failed to count {event}: {error}");
    }
}
