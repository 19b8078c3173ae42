//! What a sandbox tells of itself: the processes that carry its name, the mounts under its root.

use std::fs;

use camino::Utf8Path;

use super::environment::SandboxEnvironment;
use crate::{error::HostError, host::Process, path::is_under};

/// Processes that carry this sandbox's root in their environment, whoever started them.
pub(super) fn processes(sandbox: &SandboxEnvironment, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
    let mut found = Vec::new();
    for pid in processes_marked(&[format!("{}={}", super::ROOT, sandbox.root)])? {
        let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else { continue };
        let program = program.to_string_lossy();
        let program = program.strip_prefix(sandbox.root.as_str()).unwrap_or(&program).to_owned();
        if prefixes.is_empty() || is_under(prefixes, &program) {
            found.push(Process { pid, program });
        }
    }
    Ok(found)
}

/// Processes of the machine that carry every one of these variables (`NAME=value`) in their environment, by id. Those that ended and
/// were not yet waited for are none.
pub fn processes_marked(marks: &[String]) -> Result<Vec<i32>, HostError> {
    let proc = Utf8Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(HostError::file("list", proc))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<i32> = pids.filter(|&pid| is_marked(pid, marks)).collect();
    found.sort_unstable();
    Ok(found)
}

fn is_marked(pid: i32, marks: &[String]) -> bool {
    /// A process that becomes another program has no environment for an instant; it runs a program nevertheless.
    const LOOKS_MAX: u32 = 100;
    for _ in 0..LOOKS_MAX {
        // A process that ends meanwhile, or is another user's, is not ours to list.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        if !environment.is_empty() {
            let has = |mark: &String| environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes());
            return marks.iter().all(has);
        }
        if fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return false;
        }
        std::thread::yield_now();
    }
    false
}

pub(super) fn mounts(sandbox: &SandboxEnvironment, prefixes: &[String]) -> Result<Vec<String>, HostError> {
    let path = Utf8Path::new("/proc/self/mounts");
    let table = fs::read_to_string(path).map_err(HostError::file("read", path))?;
    let inside = |mount: &str| {
        let inside = mount.strip_prefix(sandbox.root.as_str())?;
        is_under(prefixes, inside).then(|| inside.to_owned())
    };
    Ok(table.lines().filter_map(|line| inside(line.split_whitespace().nth(1)?)).collect())
}
