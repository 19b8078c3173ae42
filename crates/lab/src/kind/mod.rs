//! The interface between a lab and the technology of its nodes.
//!
//! Guarantees: every kind provides nodes with an init system that can be booted, rebooted and cut off. A node's processes on this machine
//! are members of the node's cgroup: killing them all is a power cut and leaves nothing.
//!
//! Deliberately absent: the network (nodes of all kinds use the same bridge) and supervision. A kind defines how a boot begins and what its
//! end means; `supervisor` does the rest.

mod nspawn;

use std::process::{Command, ExitStatus};

use camino::Utf8Path;

use super::{plan::Plan, refusal::Refusal, state::Journal};
pub(super) use nspawn::{Nspawn, traces};

/// Why a boot's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BootEnd {
    /// The node requested a reboot.
    Reboot,
    /// The node powered itself off.
    Off,
    /// Any other end, as text.
    Failed(String),
}

/// A technology that provides nodes.
pub(super) trait Kind: Send + Sync {
    /// Name in the state file.
    fn name(&self) -> &'static str;

    /// Creates what a node keeps across boots, recording each item in the journal first.
    fn create(&self, plan: &Plan, journal: &mut Journal) -> anyhow::Result<()>;

    /// Removes everything that `create` created; the node is off.
    fn wipe(&self, plan: &Plan) -> anyhow::Result<()>;

    /// Returns the process of one boot, a member of the node's cgroup from its first instruction. It ends with the boot and notifies
    /// `NOTIFY_SOCKET` in the format of `sd_notify`: [`LEADER`] first if the node's init has a PID on this machine, then `READY=1` when the
    /// node has booted.
    fn boot(&self, plan: &Plan, notify: &Utf8Path) -> anyhow::Result<Command>;

    /// Interprets the exit status of that process.
    fn boot_end(&self, status: ExitStatus) -> BootEnd;

    /// Returns a command that runs `argv` in the cgroups and namespaces of the booted node, whose init has the PID `leader`.
    fn inside(&self, plan: &Plan, leader: i32, argv: &[&str]) -> anyhow::Result<Command>;
}

/// Prefix of the notification that carries the PID of the node's init.
pub(super) const LEADER: &str = "X_NSPAWN_LEADER_PID=";

/// Returns the kind with this name.
pub(super) fn named(name: &str) -> anyhow::Result<Box<dyn Kind>> {
    let kinds: [Box<dyn Kind>; 1] = [Box::new(Nspawn)];
    let found = kinds.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| Refusal::Machine(format!("the state file names the unknown kind of nodes `{name}`")).into())
}
