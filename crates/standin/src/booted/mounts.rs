//! Parses the kernel's table of mounts.

use camino::{Utf8Path, Utf8PathBuf};

/// File systems whose usage the kubelet can measure.
const COUNTED_FILE_SYSTEMS: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "overlay"];

/// The entries of `/proc/self/mountinfo`.
pub(super) struct Mounts(Vec<Mount>);

/// One mount.
pub(super) struct Mount {
    /// The directory of the file system that is mounted.
    pub(super) root: String,
    pub(super) point: Utf8PathBuf,
    pub(super) read_only: bool,
    pub(super) file_system: String,
    source: String,
}

impl Mounts {
    /// Parses the table; skips malformed lines.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(Mount::parse).collect())
    }

    /// All mounts, in the order of the table.
    pub(super) fn all(&self) -> &[Mount] {
        &self.0
    }

    /// Returns the mount that contains `path`: of the mounts with the longest matching mount point, the last.
    pub(super) fn of(&self, path: &str) -> Option<&Mount> {
        let covering = self.0.iter().filter(|mount| Utf8Path::new(path).starts_with(&mount.point));
        covering.max_by_key(|mount| mount.point.as_str().len())
    }
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point, options) = (left.next()?, left.next()?, left.next()?);
        let mut right = right.split(' ');
        Some(Self {
            root: root.to_owned(),
            point: point.into(),
            read_only: options.split(',').any(|option| option == "ro"),
            file_system: right.next()?.to_owned(),
            source: right.next()?.to_owned(),
        })
    }

    /// Whether the kubelet can measure its usage: a known file system whose source, if a path, exists.
    pub(super) fn is_counted(&self) -> bool {
        COUNTED_FILE_SYSTEMS.contains(&self.file_system.as_str())
            && (!self.source.starts_with('/') || Utf8Path::new(&self.source).exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "24 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        31 30 0:27 / /sys/fs/cgroup/memory ro,nosuid shared:9 - cgroup cgroup rw,memory\n\
        32 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

    #[test]
    fn read_only_mount_is_recognized() {
        let mounts = Mounts::parse(TEXT);
        assert!(mounts.of("/sys/fs/cgroup/memory").unwrap().read_only);
        assert!(!mounts.of("/sys/fs/cgroup/pids").unwrap().read_only);
        assert_eq!(mounts.of("/var/lib/kubelet").unwrap().file_system, "ext4");
    }
}
