//! The lab's subtree in every mounted cgroup hierarchy, version 1 and version 2.
//!
//! Guarantees: the processes of the nodes and of the lab run below [`CGROUP`](super::place::CGROUP) in every hierarchy from their first
//! instruction. Forked processes stay in the subtree, so it lists every process that is left.

use std::{fs, io, process::Command};

use anyhow::{Context, bail};
use camino::{Utf8Path, Utf8PathBuf};

use super::{mounts, place, processes};

/// Attempts to remove a cgroup whose processes have ended, 10 ms apart: one second in all.
const RELEASE_TRIES_MAX: u32 = 100;

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    mount: Utf8PathBuf,
    /// True for the unified hierarchy of version 2.
    pub(super) is_unified: bool,
    /// True for the `cpuset` controller of version 1. A new group of it accepts no process until its CPUs and memory nodes are set.
    is_cpuset: bool,
}

impl Hierarchy {
    /// The last part of the mount point, such as `unified` or `cpu,cpuacct`.
    pub(super) fn name(&self) -> &str {
        self.mount.file_name().unwrap_or(self.mount.as_str())
    }

    fn group(&self, group: &str) -> Utf8PathBuf {
        self.mount.join(group)
    }
}

/// Lists the mounted hierarchies, without duplicates.
pub(super) fn hierarchies() -> anyhow::Result<Vec<Hierarchy>> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts::all()? {
        let is_unified = mount.kind == "cgroup2";
        let of_cgroups = (is_unified || mount.kind == "cgroup") && mount.point.starts_with("/sys/fs/cgroup");
        if of_cgroups && !found.iter().any(|other| other.mount == mount.point) {
            let is_cpuset = !is_unified && mount.options.split(',').any(|option| option == "cpuset");
            found.push(Hierarchy { mount: mount.point, is_unified, is_cpuset });
        }
    }
    Ok(found)
}

/// Creates the group and its parents in every hierarchy. The caller has recorded them in the state file.
pub(super) fn make(group: &str) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        let mut folder = hierarchy.mount.clone();
        for part in group.split('/') {
            let parent = folder.clone();
            folder.push(part);
            make_one(&hierarchy, &parent, &folder)?;
        }
    }
    Ok(())
}

fn make_one(hierarchy: &Hierarchy, parent: &Utf8Path, folder: &Utf8Path) -> anyhow::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("creating {folder}"));
        }
        _ => {}
    }
    if hierarchy.is_cpuset {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let all = fs::read_to_string(parent.join(file)).with_context(|| parent.join(file).to_string())?;
            fs::write(folder.join(file), all).with_context(|| folder.join(file).to_string())?;
        }
    }
    // Passes the controllers of the parent on to the nodes' groups; the machine's root group stays unchanged.
    if hierarchy.is_unified && parent != hierarchy.mount {
        let controllers = fs::read_to_string(parent.join("cgroup.controllers"))?;
        for controller in controllers.split_whitespace() {
            let file = parent.join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).with_context(|| format!("+{controller} into {file}"))?;
        }
    }
    Ok(())
}

/// Lists the processes in the group and in the groups below it.
pub(super) fn members(group: &str) -> anyhow::Result<Vec<i32>> {
    let mut members = Vec::new();
    for hierarchy in hierarchies()? {
        for folder in tree(&hierarchy.group(group))? {
            // A group may be removed meanwhile; it then has no processes.
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            // The kernel lists processes outside this PID namespace as 0.
            members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid != 0));
        }
    }
    members.sort_unstable();
    members.dedup();
    Ok(members)
}

/// Kills every process in the group and below it, and waits until they have ended.
pub(super) fn end(group: &str) -> anyhow::Result<()> {
    let remaining = || thaw(group).and_then(|()| members(group));
    processes::end_all(remaining).with_context(|| format!("killing the processes of cgroup {group}"))
}

/// Thaws frozen processes: with version 1 they do not die of any signal. Version 2 kills frozen processes too.
fn thaw(group: &str) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        let states = tree(&hierarchy.group(group))?.into_iter().map(|folder| folder.join("freezer.state"));
        for state in states.filter(|state| state.exists()) {
            match fs::write(&state, "THAWED") {
                // A group may be removed meanwhile; it then has no processes.
                Err(error) if state.exists() => return Err(error).with_context(|| format!("thawing {state}")),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Removes the group and everything below it from every hierarchy. No process may be left in it.
pub(super) fn remove(group: &str) -> anyhow::Result<()> {
    for hierarchy in hierarchies()? {
        for folder in tree(&hierarchy.group(group))?.iter().rev() {
            remove_one(folder)?;
        }
    }
    Ok(())
}

fn remove_one(folder: &Utf8Path) -> anyhow::Result<()> {
    for _ in 0..RELEASE_TRIES_MAX {
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // The last process has ended but still counts as a member; version 1 has no event for the end of that.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => return Err(error).with_context(|| format!("removing {folder}")),
        }
    }
    bail!("{folder} is still in use after its processes have ended")
}

/// Reports whether the lab's subtree exists in any hierarchy.
pub(super) fn present() -> anyhow::Result<bool> {
    Ok(hierarchies()?.iter().any(|hierarchy| hierarchy.group(place::CGROUP).exists()))
}

/// Lists `folder` and every group below it, parents first; empty if `folder` does not exist.
fn tree(folder: &Utf8Path) -> anyhow::Result<Vec<Utf8PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).cloned() {
        next += 1;
        let Ok(entries) = folder.read_dir_utf8() else { continue };
        found.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.into_path()),
        );
    }
    Ok(found)
}

/// Moves this process into the group; processes that it starts from now on are members too.
pub(super) fn join(group: &str) -> anyhow::Result<()> {
    procs_files(group)?.iter().try_for_each(|file| fs::write(file, "0").with_context(|| file.to_string()))
}

/// Joins the groups whose `cgroup.procs` files precede `--`, then executes the command after it. Exits with 125 if a group cannot be
/// joined.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@""#;
/// Does the same and closes every inherited descriptor above 2. Otherwise a reader that waits for the end of a pipe, or a lock held by a
/// descriptor, would wait until the lab ends.
const JOIN_DETACHED: &str = r#"while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift
for fd in /proc/self/fd/*; do fd=${fd##*/}; if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi; done; exec "$@""#;

/// Builds a command that is a member of `group` from its first instruction.
pub(super) fn joined(group: &str, command: &[&str]) -> anyhow::Result<Command> {
    let mut shell = Command::new("sh");
    shell.args(["-c", JOIN, "sh"]).args(procs_files(group)?).arg("--").args(command);
    Ok(shell)
}

/// Builds a member of `group` in a new session, with only the first three descriptors: it outlives the process that starts it.
pub(super) fn detached(group: &str, command: &[&str]) -> anyhow::Result<Command> {
    let mut shell = Command::new("setsid");
    // Not `sh`: in Debian's, a redirection cannot name a descriptor above 9.
    shell.args(["bash", "-c", JOIN_DETACHED, "bash"]).args(procs_files(group)?).arg("--").args(command);
    Ok(shell)
}

/// Builds a command that joins the cgroups of the process `leader`.
pub(super) fn joined_to_process(leader: i32, command: &[&str]) -> anyhow::Result<Command> {
    let path = format!("/proc/{leader}/cgroup");
    let groups = fs::read_to_string(&path).with_context(|| path.clone())?;
    let hierarchies = hierarchies()?;
    let mut shell = Command::new("sh");
    shell.args(["-c", JOIN, "sh"]);
    for line in groups.lines() {
        if let Some(folder) = group_folder(line, &hierarchies) {
            shell.arg(folder.join("cgroup.procs"));
        }
    }
    shell.arg("--").args(command);
    Ok(shell)
}

fn procs_files(group: &str) -> anyhow::Result<Vec<Utf8PathBuf>> {
    Ok(hierarchies()?.iter().map(|hierarchy| hierarchy.group(group).join("cgroup.procs")).collect())
}

/// Returns the folder of the group in a line of `/proc/PID/cgroup` (`id:controllers:/path`), if its hierarchy is mounted.
fn group_folder(line: &str, hierarchies: &[Hierarchy]) -> Option<Utf8PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let hierarchy = hierarchies.iter().find(|hierarchy| match controllers {
        "" => hierarchy.is_unified,
        named => {
            let first = named.split(',').next().unwrap_or_default();
            !hierarchy.is_unified && hierarchy.name().split(',').any(|name| name == first.trim_start_matches("name="))
        }
    })?;
    Some(hierarchy.group(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy(name: &str, is_unified: bool) -> Hierarchy {
        Hierarchy { mount: Utf8Path::new("/sys/fs/cgroup").join(name), is_unified, is_cpuset: false }
    }

    #[test]
    fn process_groups_are_found_in_both_cgroup_versions() {
        let all = [hierarchy("cpu,cpuacct", false), hierarchy("systemd", false), hierarchy("unified", true)];
        let of = |line| group_folder(line, &all).map(Utf8PathBuf::into_string);
        assert_eq!(of("4:cpu,cpuacct:/gpuaas-lab/a"), Some("/sys/fs/cgroup/cpu,cpuacct/gpuaas-lab/a".to_owned()));
        assert_eq!(of("9:name=systemd:/x/init.scope"), Some("/sys/fs/cgroup/systemd/x/init.scope".to_owned()));
        assert_eq!(of("0::/"), Some("/sys/fs/cgroup/unified/".to_owned()));
        assert_eq!(of("3:net_cls:/"), None);
    }

    #[test]
    fn joined_command_keeps_its_arguments_and_needs_its_group() {
        let shell = |script, words: &[&str]| Command::new("bash").args(["-c", script, "bash"]).args(words).output();
        let out = shell(JOIN, &["/dev/null", "--", "printf", "%s|", "a b", "--"]).expect("bash runs");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "a b|--|");
        let out = shell(JOIN_DETACHED, &["/nowhere/cgroup.procs", "--", "true"]).expect("bash runs");
        assert_eq!(out.status.code(), Some(125));
    }

    #[test]
    fn a_detached_command_inherits_three_descriptors() {
        let script = format!("exec 7</dev/null 12</dev/null; exec bash -c '{JOIN_DETACHED}' bash -- ls /proc/self/fd");
        let out = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
        // The fourth descriptor belongs to `ls`: the folder that it lists.
        assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n1\n2\n3\n", "{}", String::from_utf8_lossy(&out.stderr));
    }
}
