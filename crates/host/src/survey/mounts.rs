//! Mounts, and the file system on which a folder really is.

use camino::Utf8Path;
use gpuaas_wire::task::{DataDisk, FileSystemFacts, MachineFacts};
use rustix::fs::StatVfs;

use super::Tree;

/// The init's mount table, which differs from that of a service with its own mount namespace; and this process's own.
const OF_INIT: &str = "/proc/1/mounts";
const OWN: &str = "/proc/self/mounts";

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mounted device.
    pub device: String,
    /// The mount point.
    pub path: String,
    /// The file system's type.
    pub kind: String,
    /// The mount options.
    pub options: Vec<String>,
}

impl Mount {
    /// Returns true if the mount has this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }
}

/// Returns all mounts in order, as the machine's init sees them; for a sandbox, as its processes see them.
pub fn mounts(tree: &Tree) -> Vec<Mount> {
    let of_init = if tree.is_sandbox() { None } else { tree.own_text(OF_INIT) };
    let table = of_init.or_else(|| tree.text(OWN)).unwrap_or_default();
    table.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').map(unescaped);
    let (device, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Mount { device, path, kind, options: fields.next()?.split(',').map(str::to_owned).collect() })
}

/// Decodes a field: the kernel writes blanks, tabs, newlines and backslashes as octal escapes such as `\040`.
fn unescaped(field: &str) -> String {
    let mut text = field.to_owned();
    for (written, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(written, meant);
    }
    text
}

/// Returns the mount on which a folder is, or would be once it is created; the last one if several are at the same mount point.
pub fn file_system(tree: &Tree, folder: &str) -> Option<Mount> {
    // A sandbox's own mount table has the node's paths; the machine's table has the path of the sandbox's folder.
    let real = if tree.is_sandbox() && !tree.own_exists(OWN) { tree.real_path(folder) } else { folder.into() };
    let under = |mount: &Mount| Utf8Path::new(&real).starts_with(&mount.path);
    // `max_by_key` returns the last of equal elements.
    mounts(tree).into_iter().filter(under).max_by_key(|mount| mount.path.len())
}

/// Returns the file systems on the machine's own disks, each device once, at most [`MachineFacts::FILE_SYSTEMS_MAX`]; none for a sandbox.
pub fn file_systems(tree: &Tree) -> Vec<FileSystemFacts> {
    let mut found: Vec<FileSystemFacts> = Vec::new();
    if tree.is_sandbox() {
        return found;
    }
    for mount in mounts(tree) {
        let is_disk = mount.device.starts_with("/dev/") && !mount.device.starts_with("/dev/loop");
        if is_disk
            && found.len() < MachineFacts::FILE_SYSTEMS_MAX
            && !found.iter().any(|known| known.device == mount.device)
        {
            let stats = tree.stat_vfs(&mount.path);
            found.push(facts(mount, stats));
        }
    }
    found
}

/// Returns the file system on which a folder is, or would be once it is created.
pub fn data_disk(tree: &Tree, folder: &str) -> Option<DataDisk> {
    let on = facts(file_system(tree, folder)?, tree.stat_vfs(folder));
    Some(DataDisk { folder: folder.to_owned(), on, writes: None })
}

/// Converts a mount; sizes are 0 if they cannot be read.
fn facts(mount: Mount, stats: Option<StatVfs>) -> FileSystemFacts {
    let bytes =
        |blocks: fn(&StatVfs) -> u64| stats.as_ref().map_or(0, |stats| blocks(stats).saturating_mul(stats.f_frsize));
    FileSystemFacts {
        size_bytes: bytes(|stats| stats.f_blocks),
        free_bytes: bytes(|stats| stats.f_bavail),
        path: mount.path,
        device: mount.device,
        kind: mount.kind,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::machine, *};

    const MOUNTS: &str = "/dev/sda1 / ext4 rw,relatime 0 0\nproc /proc proc rw,nosuid 0 0\n\
        /dev/sdb1 /var/lib/rancher xfs rw,noexec 0 0\n/dev/sdb1 /srv/my\\040disk xfs ro 0 0\n/dev/loop3 /snap/x squashfs ro 0 0\n\
        tmpfs /var/lib tmpfs rw 0 0\n/dev/sdc1 /var/lib ext4 rw,nodev 0 0\n";

    #[test]
    fn folder_is_on_its_nearest_and_last_mount() {
        let (_folder, tree) = machine(&[(OWN, MOUNTS)]);
        let of = |folder: &str| file_system(&tree, folder).unwrap();
        assert_eq!(of("/var/lib/rancher/rke2").kind, "xfs");
        assert!(of("/var/lib/rancher/rke2").has("noexec") && !of("/var/lib/rancher").has("exec"));
        assert_eq!((of("/var/lib/kubelet").device.as_str(), of("/var/lib").kind.as_str()), ("/dev/sdc1", "ext4"));
        assert_eq!(of("/var/libexec").path, "/", "a mount point matches whole path components");
        assert_eq!(of("/srv/my disk/x").path, "/srv/my disk");
        assert_eq!(file_system(&machine(&[]).1, "/var"), None);
    }

    #[test]
    fn each_disk_is_listed_once() {
        let (_folder, tree) = machine(&[(OWN, MOUNTS)]);
        let paths: Vec<String> = file_systems(&tree).into_iter().map(|disk| disk.path).collect();
        assert_eq!(paths, ["/", "/var/lib/rancher", "/var/lib"]);
        let (_folder, tree) = machine(&[(OWN, MOUNTS), (OF_INIT, "/dev/sda1 / ext4 rw 0 0\n")]);
        assert_eq!(file_systems(&tree).len(), 1, "a service's own view is not the machine's");
    }

    #[test]
    fn sandbox_uses_the_disk_of_its_root_and_lists_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = camino::Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        let sandbox = Tree::of_sandbox(root.clone());
        let of_root = file_system(&Tree::of_this_machine(), root.as_str()).unwrap();
        assert_eq!(file_system(&sandbox, "/var/lib/rancher/rke2"), Some(of_root));
        assert_eq!(file_systems(&sandbox), []);
        let disk = data_disk(&sandbox, "/var/lib/rancher/rke2").unwrap();
        assert!(disk.on.size_bytes >= disk.on.free_bytes && disk.on.size_bytes > 0);
    }
}
