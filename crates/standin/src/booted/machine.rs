//! Detects features that kubelet and runtime expect and this machine lacks, and adapts their configuration.
//!
//! Probes everything at every start. A machine with all features gets RKE2's settings, and nothing is logged.

use std::fs;

use camino::Utf8PathBuf;
use rustix::mount::{MountFlags, mount_remount};

use super::mounts::Mounts;
use crate::log;
use crate::paths::{self, HostPaths};

/// The capability that is required to lower a process's OOM score.
const CAP_SYS_RESOURCE: u32 = 24;
/// The features that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) cgroups: Cgroups,
    /// Whether OOM scores can be lowered.
    pub(crate) lowers_oom_scores: bool,
    /// Whether overlay mounts work in the data directory.
    pub(crate) overlays: bool,
    /// Whether the kubelet can measure the usage of its disk.
    pub(crate) counts_storage: bool,
}

/// The version and layout of the control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cgroups {
    /// One tree; systemd creates the groups.
    V2,
    /// One tree per controller.
    V1 {
        /// The group that must contain all of this node's groups, if it shares the trees with other nodes.
        root: Option<String>,
        /// Mount points of the trees.
        trees: Vec<Utf8PathBuf>,
    },
}

impl Machine {
    /// Probes the machine, makes its control groups usable, and logs each difference from RKE2's requirements.
    pub(crate) fn probe(host: &HostPaths) -> anyhow::Result<Self> {
        let mounts = Mounts::parse(&fs::read_to_string("/proc/self/mountinfo")?);
        let machine = Self {
            cgroups: Cgroups::of(&mounts, &fs::read_to_string("/proc/1/cgroup")?),
            lowers_oom_scores: has_capability(&fs::read_to_string("/proc/self/status")?, CAP_SYS_RESOURCE),
            overlays: overlays(host)?,
            counts_storage: mounts.of("/var/lib/kubelet").is_some_and(|mount| mount.is_counted()),
        };
        machine.prepare(&mounts)?;
        for concession in machine.concessions() {
            log::info!("Stand-in concession to this machine: {concession}");
        }
        Ok(machine)
    }

    /// Describes each setting that differs from RKE2's, and why.
    fn concessions(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Cgroups::V1 { root, .. } = &self.cgroups {
            texts.push("cgroup v1, so the kubelet has failCgroupV1 off and the driver cgroupfs".to_owned());
            if let Some(root) = root {
                texts.push(format!("control groups are shared with other nodes, so all pods are below {root}"));
            }
        }
        if !self.lowers_oom_scores {
            texts.push("CAP_SYS_RESOURCE is missing, so containerd has restrict_oom_score_adj on".to_owned());
        }
        if !self.overlays {
            texts.push("the data directory does not support overlayfs, so the snapshotter is native".to_owned());
        }
        if !self.counts_storage {
            texts.push("disk usage of the kubelet is unknown, so localStorageCapacityIsolation is off".to_owned());
        }
        texts
    }

    fn prepare(&self, mounts: &Mounts) -> anyhow::Result<()> {
        let Cgroups::V1 { root, trees } = &self.cgroups else { return Ok(()) };
        for tree in trees {
            if mounts.of(tree.as_str()).is_some_and(|mount| mount.read_only) {
                mount_remount(tree.as_std_path(), MountFlags::BIND, "")
                    .map_err(|error| anyhow::anyhow!("cannot make {tree} writable: {error}"))?;
                log::info!("Stand-in concession to this machine: {tree} was read-only and is now writable");
            }
            if let Some(root) = root {
                paths::make_dir(&tree.join(root.trim_start_matches('/')), 0o755)?;
            }
        }
        Ok(())
    }
}

impl Cgroups {
    fn of(mounts: &Mounts, of_init: &str) -> Self {
        if mounts.all().iter().any(|mount| mount.file_system == "cgroup2" && mount.point == "/sys/fs/cgroup") {
            return Self::V2;
        }
        let trees = mounts.all().iter().filter(|mount| mount.file_system == "cgroup").map(|mount| mount.point.clone());
        // The init's group in the memory controller: if it is not the root of the tree, other groups belong to other nodes.
        let memory = of_init.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            controllers.split(',').any(|name| name == "memory").then(|| parts.next()).flatten()
        });
        let top = mounts.of("/sys/fs/cgroup/memory").map_or("/", |mount| mount.root.as_str());
        let visible = memory.and_then(|path| path.strip_prefix(top.trim_end_matches('/'))).unwrap_or_default();
        let root = visible.strip_suffix("/init.scope").unwrap_or(visible).trim_end_matches('/');
        Self::V1 { root: (!root.is_empty()).then(|| root.to_owned()), trees: trees.collect() }
    }
}

/// Whether `status`, the content of `/proc/self/status`, shows the capability as effective.
fn has_capability(status: &str, number: u32) -> bool {
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
    bits.and_then(|bits| u64::from_str_radix(bits, 16).ok()).is_some_and(|bits| bits >> number & 1 == 1)
}

/// Mounts an overlay in the data directory to find out whether its file system supports overlays.
fn overlays(host: &HostPaths) -> anyhow::Result<bool> {
    let folder = host.data("agent/overlay-probe");
    // With its final mode, because the probe may be the first to create it.
    paths::make_dir(&host.data("agent"), 0o755)?;
    for part in ["lower", "upper", "work", "merged"] {
        paths::make_dir(&folder.join(part), 0o700)?;
    }
    let options = format!("lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work");
    let merged = folder.join("merged");
    let options = std::ffi::CString::new(options)?;
    let mounted =
        rustix::mount::mount("overlay", merged.as_std_path(), "overlay", MountFlags::empty(), options.as_c_str());
    if mounted.is_ok() {
        rustix::mount::unmount(merged.as_std_path(), rustix::mount::UnmountFlags::empty())?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(mounted.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "24 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        31 30 0:27 / /sys/fs/cgroup/memory ro,nosuid shared:9 - cgroup cgroup rw,memory\n\
        32 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

    #[test]
    fn node_on_a_shared_machine_uses_the_group_of_its_init() {
        let cgroups = |of_init: &str| Cgroups::of(&Mounts::parse(V1), of_init);
        let trees = vec!["/sys/fs/cgroup/memory".into(), "/sys/fs/cgroup/pids".into()];
        let shared_machine = Cgroups::V1 { root: Some("/lab/n1".to_owned()), trees: trees.clone() };
        assert_eq!(cgroups("5:pids:/x\n4:memory:/lab/n1/init.scope\n1:name=systemd:/y\n"), shared_machine);
        assert_eq!(cgroups("4:cpu,memory:/lab/n1\n"), shared_machine);
        let own_machine = Cgroups::V1 { root: None, trees };
        assert_eq!(cgroups("4:memory:/init.scope\n"), own_machine);
        assert_eq!(cgroups("4:memory:/\n"), own_machine);
        // Only this node's part of the tree is mounted, so the visible root is its own.
        let part = V1.replace("0:27 / /sys", "0:27 /lab/n1 /sys");
        let Cgroups::V1 { root, .. } = Cgroups::of(&Mounts::parse(&part), "4:memory:/lab/n1/init.scope\n") else {
            panic!("not v1")
        };
        assert_eq!(root, None);
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(Cgroups::of(&Mounts::parse(v2), "0::/init.scope\n"), Cgroups::V2);
    }

    #[test]
    fn a_capability_is_one_bit() {
        let status = "Name:\trke2\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\n";
        assert!(!has_capability(status, CAP_SYS_RESOURCE));
        assert!(has_capability(status, CAP_SYS_RESOURCE - 1));
        assert!(!has_capability("", 0));
    }

    #[test]
    fn capable_machine_gets_no_concessions() {
        let able = Machine { cgroups: Cgroups::V2, lowers_oom_scores: true, overlays: true, counts_storage: true };
        assert_eq!(able.concessions(), Vec::<String>::new());
        let cgroups = Cgroups::V1 { root: Some("/n1".to_owned()), trees: Vec::new() };
        let poor = Machine { cgroups, lowers_oom_scores: false, overlays: false, counts_storage: false };
        assert_eq!(poor.concessions().len(), 5);
    }
}
