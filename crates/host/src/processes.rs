//! The processes of a machine, from `/proc`.
//!
//! Guarantees: a process that cannot be inspected is an error and is not skipped, because callers need to know that none remains.

use std::{fs, io::ErrorKind};

use camino::Utf8Path;

use crate::{cgroup::InitGroups, error::HostError, inventory::Process, path::is_under};

/// Returns the processes whose program is under one of the prefixes, or all. Kernel threads have no program and are left out.
pub(crate) fn processes(prefixes: &[String]) -> Result<Vec<Process>, HostError> {
    let init = InitGroups::of_init(&fs::read_to_string("/proc/1/cgroup").unwrap_or_default());
    let mut found = Vec::new();
    for pid in pids()? {
        let Some(program) = program(pid)? else { continue };
        if prefixes.is_empty() || is_under(prefixes, &program) {
            // A process that has ended since has no cgroup.
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let (cgroup, unit) = init.locate(&groups);
            found.push(Process { pid, program, unit, cgroup });
        }
    }
    Ok(found)
}

/// Returns the sorted ids of all processes.
pub(crate) fn pids() -> Result<Vec<i32>, HostError> {
    let proc = Utf8Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(HostError::file("list", proc))?;
    let mut pids: Vec<i32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Returns the program's path of a process; `None` for a process that has ended and for a kernel thread. A program that was deleted while
/// it runs keeps its path.
pub(crate) fn program(pid: i32) -> Result<Option<String>, HostError> {
    let path = format!("/proc/{pid}/exe");
    let program = match fs::read_link(&path) {
        Ok(program) => program,
        Err(error) if error.kind() == ErrorKind::NotFound || has_exited(&error) => return Ok(None),
        Err(error) => return Err(HostError::file("read", Utf8Path::new(&path))(error)),
    };
    let program = program.to_string_lossy();
    Ok(Some(program.strip_suffix(" (deleted)").unwrap_or(&program).to_owned()))
}

fn has_exited(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_program_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("sleeper");
        fs::copy("/bin/sleep", &copy).unwrap();
        let mut child = std::process::Command::new(&copy).arg("1000").spawn().unwrap();
        fs::remove_file(&copy).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let running = program(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(running.unwrap().as_deref(), copy.to_str());
        assert_eq!(program(pid).unwrap(), None, "the process has ended");
    }
}
