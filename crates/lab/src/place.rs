//! Paths and names that a lab uses.
//!
//! Guarantees: everything that a lab creates lies below one of these folders or carries one of these names, so `down` finds it even without
//! a state file.

use camino::{Utf8Path, Utf8PathBuf};

use super::name::{LINKS, NodeName};

/// State until the next boot of this machine: state file, sockets, namespaces, mounted trees of the nodes.
pub(super) const RUN: &str = "/run/gpuaas-lab";
/// Data that the nodes write.
pub(super) const DATA: &str = "/var/lib/gpuaas-lab";
/// The lab's subtree in every cgroup hierarchy.
pub(super) const CGROUP: &str = "gpuaas-lab";
/// Group below it for the processes that start others.
pub(super) const SUPERVISORS: &str = "supervisors";
/// Group below it for the lab's other processes on this machine: DNS, the build of a root file system, programs of a test.
pub(super) const SERVICES: &str = "services";
/// Mark of the lab in firewall rules, lines of `/etc/hosts`, names of systemd-nspawn machines and DNS names.
pub(super) const MARK: &str = "gpuaas-lab";
/// The bridge that connects all nodes.
pub(super) const BRIDGE: &str = "gpulab0";
/// Domain of the nodes' names. `.test` is reserved (RFC 6761).
pub(super) const DOMAIN: &str = "gpuaas-lab.test";
/// Prefix of a folder in the cache in which a root file system is being built.
pub(super) const UNFINISHED: &str = ".building-";

/// The state file, which records everything before it is created.
pub(super) fn state_file() -> Utf8PathBuf {
    Utf8PathBuf::from(RUN).join("state.jsonl")
}

/// Folder of a node's sockets, logs and namespaces.
pub(super) fn run_of(node: &NodeName) -> Utf8PathBuf {
    Utf8PathBuf::from(RUN).join("nodes").join(node.as_str())
}

/// Mount point of a node's tree.
pub(super) fn root_of(node: &NodeName) -> Utf8PathBuf {
    run_of(node).join("root")
}

/// Network namespace of a node's current boot.
pub(super) fn netns_of(node: &NodeName) -> Utf8PathBuf {
    run_of(node).join("netns")
}

/// This machine's end of a node's link.
pub(super) fn link_of(node: &NodeName) -> String {
    format!("{LINKS}-{node}")
}

/// Folder of the data that a node writes.
pub(super) fn data_of(node: &NodeName) -> Utf8PathBuf {
    Utf8PathBuf::from(DATA).join(node.as_str())
}

/// Folder of a control plane that runs next to the lab. The name is too long for a node, so it cannot collide.
pub(super) fn control_plane() -> Utf8PathBuf {
    Utf8PathBuf::from(DATA).join("control-plane")
}

/// Returns the path of a group below [`CGROUP`].
pub(super) fn group(name: &str) -> String {
    format!("{CGROUP}/{name}")
}

/// Reports whether a folder is an incomplete one, in the cache of any user.
pub(super) fn is_unfinished(folder: &Utf8Path) -> bool {
    folder.file_name().is_some_and(|name| name.starts_with(UNFINISHED))
        && folder.parent().is_some_and(|cache| cache.ends_with("gpuaas/lab"))
}
