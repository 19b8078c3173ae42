//! The processes, sockets and mounts of a sandbox: processes are recognised by their environment, mounts by their path.

use std::fs;

use super::environment::SandboxEnvironment;
use crate::{
    error::HostError,
    inventory::{Listener, Process},
    mounts::mount_points,
    path::is_under,
    processes, sockets,
};

/// Returns the processes that have this sandbox's root in their environment, regardless of their parent.
pub(super) fn processes(sandbox: &SandboxEnvironment, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
    let mut found = Vec::new();
    for pid in processes_marked(&[format!("{}={}", super::ROOT, sandbox.root)])? {
        let Ok(Some(program)) = processes::program(pid) else { continue };
        let program = program.strip_prefix(sandbox.root.as_str()).unwrap_or(&program).to_owned();
        if prefixes.is_empty() || is_under(prefixes, &program) {
            found.push(Process { pid, program, unit: unit(pid), cgroup: String::new() });
        }
    }
    Ok(found)
}

/// Returns the sorted ids of the machine's processes that have all of these variables (`NAME=value`) in their environment. Zombies do not
/// count.
pub fn processes_marked(marks: &[String]) -> Result<Vec<i32>, HostError> {
    Ok(processes::pids()?.into_iter().filter(|&pid| is_marked(pid, marks)).collect())
}

/// Returns the unit in a process's environment.
fn unit(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = format!("{}=", super::UNIT);
    let unit = environment.split(|&byte| byte == 0).find_map(|variable| variable.strip_prefix(mark.as_bytes()))?;
    Some(String::from_utf8_lossy(unit).into_owned())
}

/// Returns the sockets that a process of this sandbox has open: the sandbox shares its machine's network.
pub(super) fn listeners(sandbox: &SandboxEnvironment) -> Result<Vec<Listener>, HostError> {
    let mut found = sockets::listeners(processes(sandbox, &[])?)?;
    found.retain(|listener| listener.process.is_some());
    Ok(found)
}

fn is_marked(pid: i32, marks: &[String]) -> bool {
    /// During `exec` a process has an empty environment for an instant, although it has a program.
    const LOOKS_MAX: u32 = 100;
    for _ in 0..LOOKS_MAX {
        // Skips processes that have ended since, and those of other users.
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

/// Returns the mount points under this sandbox's root.
pub(super) fn mounts(sandbox: &SandboxEnvironment, prefixes: &[String]) -> Result<Vec<String>, HostError> {
    let inside = |mount: String| {
        let inside = mount.strip_prefix(sandbox.root.as_str())?;
        is_under(prefixes, inside).then(|| inside.to_owned())
    };
    Ok(mount_points("self")?.into_iter().filter_map(inside).collect())
}
