//! The seam between a lab and what its nodes are made of.
//!
//! Guarantees: whatever a kind makes of a node is a machine with an init of its own that is booted, rebooted and cut off; its processes on this
//! machine are members of the node's cgroup, so that ending these is a power cut and leaves nothing.
//!
//! Deliberately absent: the network (every kind's nodes hang on the same bridge), and supervision: a kind says how one boot begins and what its end
//! means; `supervisor` does the rest.

use std::{
    net::Ipv4Addr,
    process::{Command, ExitStatus},
};

use camino::Utf8Path;

use super::{
    name::NodeName,
    network::Subnet,
    nspawn::Nspawn,
    refusal::Refusal,
    state::{Journal, State},
};

/// What is decided about a node before it is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its name.
    pub(crate) name: NodeName,
    /// Its address.
    pub(crate) address: Ipv4Addr,
    /// The network that it is in.
    pub(crate) subnet: Subnet,
}

impl Plan {
    /// That of a node of this lab.
    pub(super) fn of(state: &State, name: &NodeName) -> Result<Self, Refusal> {
        let address = state.shape.subnet.node(state.index_of(name)?);
        Ok(Self { name: name.clone(), address, subnet: state.shape.subnet })
    }
}

/// What the end of a boot's process means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The node asked to be booted again.
    Reboot,
    /// The node switched itself off.
    Off,
    /// Something else, in words.
    Failed(String),
}

/// A way to make a machine of a node.
pub(super) trait Kind: Send + Sync {
    /// What the state file calls it.
    fn name(&self) -> &'static str;

    /// Makes what a node keeps over its boots, saying in the journal what is made next.
    fn lay(&self, plan: &Plan, journal: &mut Journal) -> anyhow::Result<()>;

    /// Removes all of that; the node is off.
    fn wipe(&self, plan: &Plan) -> anyhow::Result<()>;

    /// The process of one boot, in the node's cgroup from its first instruction on. It ends with the boot, and tells `NOTIFY_SOCKET` as
    /// `sd_notify` does: `READY=1` when the node has booted, and before that [`LEADER`] if the node's first process is one of this machine's.
    fn boot(&self, plan: &Plan, notify: &Utf8Path) -> anyhow::Result<Command>;

    /// What the end of that process means.
    fn ended(&self, status: ExitStatus) -> Ended;

    /// A command that runs `words` inside, in the groups and namespaces of the booted node; `leader` is its first process.
    fn inside(&self, plan: &Plan, leader: i32, words: &[&str]) -> anyhow::Result<Command>;
}

/// How a boot tells the PID of the node's first process.
pub(super) const LEADER: &str = "X_NSPAWN_LEADER_PID=";

/// The kind of that name.
pub(super) fn named(name: &str) -> anyhow::Result<Box<dyn Kind>> {
    let kinds: [Box<dyn Kind>; 1] = [Box::new(Nspawn)];
    let found = kinds.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| Refusal::Machine(format!("its lab is of a kind `{name}` that is not known")).into())
}
