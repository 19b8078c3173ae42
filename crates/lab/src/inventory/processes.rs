//! Processes with their namespaces and cgroups.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::MARK;

/// Kinds of namespaces.
const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
/// PID of `kthreadd`, the parent of kernel threads.
const KERNEL_THREADS: &str = "2";
/// State of a process that holds nothing but its PID.
const ZOMBIE: &str = "Z";
/// Where cgroup hierarchies are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Command line with arguments.
    pub(super) command: String,
    /// Whether its environment carries the mark of a lab's test.
    pub(super) is_marked: bool,
    /// Namespaces as `kind:[inode]`.
    pub(super) namespaces: BTreeSet<String>,
}

impl Process {
    /// Reports whether only a lab can have started it, given the namespaces that existed before.
    pub(super) fn belongs_to_lab(&self, before: &BTreeSet<String>) -> bool {
        self.is_marked || self.command.contains("gpuaas-lab") || !self.namespaces.is_subset(before)
    }
}

/// Lists all processes except kernel threads and this one, keyed by PID and start time.
pub(super) fn all() -> anyhow::Result<BTreeMap<String, Process>> {
    let own = std::process::id().to_string();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != own && name.bytes().all(|byte| byte.is_ascii_digit()) {
            found.extend(read(&name, &entry.path()));
        }
    }
    Ok(found)
}

/// Reads one process. None for kernel threads and for processes that have ended, reaped or not.
fn read(pid: &str, folder: &Path) -> Option<(String, Process)> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let (state, parent, started) = state_parent_and_start(&stat)?;
    if state == ZOMBIE || pid == KERNEL_THREADS || parent == KERNEL_THREADS {
        return None;
    }
    let content = |file: &str| fs::read(folder.join(file)).unwrap_or_default();
    let command = String::from_utf8_lossy(&content("cmdline")).trim_end_matches('\0').replace('\0', " ");
    let command = if command.is_empty() { stat.split(' ').nth(1)?.to_owned() } else { command };
    let mark = format!("{MARK}=");
    let is_marked = content("environ").split(|byte| *byte == 0).any(|word| word.starts_with(mark.as_bytes()));
    let namespaces = NAMESPACES
        .iter()
        .filter_map(|kind| Some(fs::read_link(folder.join("ns").join(kind)).ok()?.to_string_lossy().into_owned()))
        .collect();
    Some((format!("{pid}@{started}"), Process { command, is_marked, namespaces }))
}

/// Parses `pid (name) state parent … start …`; the name may contain anything, and the start is field 22.
fn state_parent_and_start(stat: &str) -> Option<(&str, &str, &str)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?, fields.next()?, fields.nth(17)?))
}

/// Lists every cgroup of every hierarchy with those of its processes that are in `processes`.
pub(super) fn by_cgroup(processes: &BTreeMap<String, Process>) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let by_pid: BTreeMap<&str, &String> = processes.keys().filter_map(|id| Some((id.split('@').next()?, id))).collect();
    let mut found = BTreeMap::new();
    let mut folders = vec![CGROUPS.to_owned()];
    while let Some(folder) = folders.pop() {
        // Another user's group may disappear meanwhile.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let inner = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inner.map(|entry| entry.path().to_string_lossy().into_owned()));
        let Ok(members) = fs::read_to_string(format!("{folder}/cgroup.procs")) else { continue };
        let members = members.lines().filter_map(|pid| by_pid.get(pid).map(|id| (*id).clone())).collect();
        found.insert(folder.trim_start_matches(CGROUPS).trim_start_matches('/').to_owned(), members);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn process_name_may_contain_parentheses() {
        let stat = "812 (a) b (c) S 1 812 812 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 1 0 99887 1000 50";
        assert_eq!(state_parent_and_start(stat), Some(("S", "1", "99887")));
    }

    #[test]
    fn ended_child_is_not_listed() {
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let id = format!("{}@", child.id());
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        waitid(WaitId::Pid(pid), ended).expect("the child ends");
        let is_listed = all().expect("the processes are listed").keys().any(|name| name.starts_with(&id));
        child.wait().expect("the child is reaped");
        assert!(!is_listed);
    }

    #[test]
    fn marked_child_is_recognised() {
        let mut child = std::process::Command::new("sleep").arg("300").env(MARK, "1").spawn().expect("sleep runs");
        let id = format!("{}@", child.id());
        let all = all().expect("the processes are listed");
        let found = all.iter().find(|(name, _)| name.starts_with(&id)).map(|(_, process)| process.clone());
        child.kill().and_then(|()| child.wait()).expect("the child is killed");
        let found = found.expect("the child was listed");
        // Between fork and exec it may still have the command line of this process.
        assert!(found.namespaces.iter().any(|namespace| namespace.starts_with("net:[")), "{found:?}");
        let others: BTreeSet<String> = all.values().flat_map(|process| process.namespaces.clone()).collect();
        assert_eq!(found.belongs_to_lab(&others), found.is_marked || found.command.contains("gpuaas-lab"));
    }
}
