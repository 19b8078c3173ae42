//! Where a lab keeps things, and the names by which its things are known in the world.
//!
//! Guarantees: everything that a lab makes lies below one of these folders or carries one of these names, so that `down` finds it also without a
//! state file.

use camino::Utf8PathBuf;

use super::name::NodeName;

/// What lives as long as the machine is up: state, sockets, namespaces, the nodes' trees as they are mounted.
pub(super) const RUN: &str = "/run/gpuaas-lab";
/// What the nodes write.
pub(super) const DATA: &str = "/var/lib/gpuaas-lab";
/// The lab's subtree of every cgroup hierarchy.
pub(super) const CGROUP: &str = "gpuaas-lab";
/// Below it, those of the lab's processes that make others.
pub(super) const SUPERVISORS: &str = "supervisors";
/// Below it, the lab's other processes on this machine: DNS, the making of a root file system, what a test runs.
pub(super) const SERVICES: &str = "services";
/// How firewall rules, lines of `/etc/hosts`, machines of systemd-nspawn and DNS names are told as the lab's.
pub(super) const MARK: &str = "gpuaas-lab";
/// Every link's name begins so; a link's name has fifteen characters at most.
pub(super) const LINKS: &str = "gpulab";
/// The bridge of all nodes.
pub(super) const BRIDGE: &str = "gpulab0";
/// The domain of the nodes' names. `.test` is nobody's (RFC 6761).
pub(super) const DOMAIN: &str = "gpuaas-lab.test";

/// Says what is about to be made, before it is.
pub(super) fn state_file() -> Utf8PathBuf {
    Utf8PathBuf::from(RUN).join("state.jsonl")
}

/// A node's sockets, logs and namespaces.
pub(super) fn run_of(node: &NodeName) -> Utf8PathBuf {
    Utf8PathBuf::from(RUN).join("nodes").join(node.as_str())
}

/// A node's tree, mounted.
pub(super) fn root_of(node: &NodeName) -> Utf8PathBuf {
    run_of(node).join("root")
}

/// The network namespace of a node's present boot.
pub(super) fn netns_of(node: &NodeName) -> Utf8PathBuf {
    run_of(node).join("netns")
}

/// This machine's end of a node's link.
pub(super) fn link_of(node: &NodeName) -> String {
    format!("{LINKS}-{node}")
}

/// What a node wrote.
pub(super) fn data_of(node: &NodeName) -> Utf8PathBuf {
    Utf8PathBuf::from(DATA).join(node.as_str())
}

/// What a control plane beside the lab keeps. No node has that name: it is too long.
pub(super) fn control_plane() -> Utf8PathBuf {
    Utf8PathBuf::from(DATA).join("control-plane")
}

/// A group below [`CGROUP`].
pub(super) fn group(name: &str) -> String {
    format!("{CGROUP}/{name}")
}
