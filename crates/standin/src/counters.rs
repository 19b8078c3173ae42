//! Appends what happened to the stand-in (start, ready, stop, exit) to a file that outlives an uninstall.
//!
//! One JSON line each, so that whoever checks the platform can count starts without trusting the platform's own word.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use serde_json::json;

use crate::paths::{self, HostPaths};

/// Outside everything that `rke2-uninstall.sh` removes.
pub(crate) const FILE: &str = "/var/lib/stand-in/counters.jsonl";

/// Appends one line; a counter that cannot be written is logged and never stops the node.
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
