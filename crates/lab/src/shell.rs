//! Runs other programs, prints what runs, and reports failures with the command.

use std::{process::Command, time::Instant};

use anyhow::{Context, bail};

/// Path of the running program: cargo may have replaced the file that it was started from.
pub fn own_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// Runs `command` with inherited output under the heading `what`; prints its duration in seconds.
pub fn run(what: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("==> {what}");
    let began = Instant::now();
    let status = command.status().with_context(|| format!("{what}: {command:?} could not be started"))?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    eprintln!("    {what}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Runs `command` and returns its stdout.
pub fn capture(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?} could not be started"))?;
    if !output.status.success() {
        bail!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}
