//! Nodes as systemd-nspawn containers: each is a booted systemd with its own processes, network, host name and cgroups, on this machine's
//! kernel.
//!
//! Guarantees: needs neither machined nor a running systemd on this machine.
//!
//! Deliberately absent: isolation. Root in a node is root on this machine (all capabilities, no system call filter), because a kubelet
//! needs that.

use std::process::{Command, ExitStatus};

use camino::Utf8Path;

use super::{BootEnd, Kind};
use crate::{
    cgroups,
    name::NodeName,
    packages,
    place::{self, MARK, group},
    plan::Plan,
    resource::Resource,
    rootfs,
    state::{self, Journal},
    tree,
};

/// Exit code of systemd-nspawn when the container requests a reboot.
const REBOOT: i32 = 133;
/// Where systemd-nspawn creates files outside of its container.
const TRACES: &str = "/run/systemd/nspawn";

/// The kind of nodes that are systemd-nspawn containers.
pub(crate) struct Nspawn;

impl Nspawn {
    /// Name of the kind in the state file.
    pub(crate) const NAME: &'static str = "nspawn";
}

impl Kind for Nspawn {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn create(&self, plan: &Plan, journal: &mut Journal) -> anyhow::Result<()> {
        let shared = rootfs::ensure(journal)?;
        for folder in ["propagate", "unix-export"] {
            state::new_folder(journal, &Utf8Path::new(TRACES).join(folder))?;
        }
        traces_of(&machine_of(&plan.name)).into_iter().try_for_each(|trace| journal.record(trace))?;
        tree::create(plan, &shared, journal)
    }

    fn wipe(&self, plan: &Plan) -> anyhow::Result<()> {
        Resource::Mounts(place::root_of(&plan.name)).remove()?;
        Resource::Tree(place::data_of(&plan.name)).remove()
    }

    fn boot(&self, plan: &Plan, notify: &Utf8Path) -> anyhow::Result<Command> {
        let words = command_line(plan);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = cgroups::joined(&group(plan.name.as_str()), &words)?;
        command
            .env("PATH", packages::path())
            .env("NOTIFY_SOCKET", notify)
            // Makes only the sysctls of the node's own network writable: all others belong to the whole machine.
            .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "network")
            // Disables the system call filter: runc needs calls that it blocks, and a real machine has none.
            .env("SYSTEMD_SECCOMP", "0")
            // Keeps `/tmp` on disk, as Debian does.
            .env("SYSTEMD_NSPAWN_TMPFS_TMP", "0")
            // No lock file next to the tree: the lab's lock already keeps labs apart.
            .env("SYSTEMD_NSPAWN_LOCK", "0");
        Ok(command)
    }

    fn boot_end(&self, status: ExitStatus) -> BootEnd {
        match status.code() {
            Some(REBOOT) => BootEnd::Reboot,
            Some(0) => BootEnd::Off,
            _ => BootEnd::Failed(format!("systemd-nspawn ended with {status}")),
        }
    }

    fn inside(&self, plan: &Plan, leader: i32, argv: &[&str]) -> anyhow::Result<Command> {
        let target = format!("--target={leader}");
        let namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"];
        let enter = [&["nsenter", &target][..], &namespaces, &["--root", "--wd", "--"]].concat();
        let mut command = cgroups::joined_to_process(leader, &[&enter[..], argv].concat())?;
        // This machine's environment does not apply inside.
        command.env_clear().envs([
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("USER", "root"),
            ("LANG", "C.UTF-8"),
            ("HOSTNAME", plan.name.as_str()),
        ]);
        Ok(command)
    }
}

/// Name of a node's container.
fn machine_of(name: &NodeName) -> String {
    format!("{MARK}-{name}")
}

/// Things that a killed systemd-nspawn of any version leaves outside of its container: one or two folders, one of them a mount point.
fn traces_of(machine: &str) -> Vec<Resource> {
    let traces = Utf8Path::new(TRACES);
    let folders = [
        traces.join("propagate").join(machine),
        traces.join("unix-export").join(machine),
        traces.join(machine).join("unix-export"),
        traces.join(machine),
    ];
    let mounts = [traces.join("unix-export").join(machine), traces.join(machine)];
    mounts.into_iter().map(Resource::Mounts).chain(folders.into_iter().map(Resource::Folder)).collect()
}

/// Finds the same things for nodes of any name.
pub(crate) fn traces() -> Vec<Resource> {
    let traces = Utf8Path::new(TRACES);
    let folders = [traces.to_owned(), traces.join("propagate"), traces.join("unix-export")];
    let entries = folders.iter().filter_map(|folder| folder.read_dir_utf8().ok()).flatten().flatten();
    let machines = entries.filter(|entry| entry.file_name().starts_with(&format!("{MARK}-")));
    machines.flat_map(|machine| traces_of(machine.file_name())).filter(Resource::exists).collect()
}

fn command_line(plan: &Plan) -> Vec<String> {
    let name = &plan.name;
    let mut words: Vec<String> =
        ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--notify-ready=yes"]
            .map(str::to_owned)
            .to_vec();
    words.extend([
        format!("--machine={}", machine_of(name)),
        format!("--hostname={name}"),
        format!("--directory={}", place::root_of(name)),
        format!("--network-namespace-path={}", place::netns_of(name)),
    ]);
    // Kubelets read the kernel's log.
    let rest = [
        "--capability=all",
        "--bind=/dev/kmsg",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=read-only",
    ];
    words.extend(rest.map(str::to_owned));
    words
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn exit_code_of_a_container_means_reboot_off_or_failure() {
        let ended = |code: i32| Nspawn.boot_end(ExitStatus::from_raw(code << 8));
        assert_eq!((ended(133), ended(0)), (BootEnd::Reboot, BootEnd::Off));
        assert!(matches!(ended(1), BootEnd::Failed(why) if why.contains("1")));
        assert!(matches!(Nspawn.boot_end(ExitStatus::from_raw(9)), BootEnd::Failed(_)));
    }
}
