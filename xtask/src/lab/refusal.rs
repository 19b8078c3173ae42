//! What the lab says no to, each with an exit code of its own.

use super::name::NodeName;

/// Why a lab command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Nothing of this can be done by an ordinary user.
    #[error("the lab makes namespaces, mounts and links, and needs root: `sudo -E cargo xtask lab …`{0}")]
    NotRoot(String),
    /// What the machine cannot do.
    #[error("this machine cannot hold a lab: {0}")]
    Machine(String),
    /// Programs that are not there.
    #[error("missing: {programs}. Install the Debian packages {packages}")]
    Packages { programs: String, packages: String },
    /// One at a time.
    #[error("another lab command is at work (process {0}); wait for its end")]
    AtWork(i32),
    /// The lab that is there is another one.
    #[error("a lab of {there} is up, and {asked} was asked for. `cargo xtask lab down` removes it")]
    OtherLab { there: String, asked: String },
    /// The lab that is there is in ruins.
    #[error("something of an earlier lab is still here ({0}). `cargo xtask lab down` removes it")]
    Ruins(String),
    /// There is no lab.
    #[error("there is no lab. `cargo xtask lab up` makes one")]
    NoLab,
    /// There is no such node.
    #[error("the lab has no node {asked}; it has {there}")]
    NoNode { asked: NodeName, there: String },
    /// The node does not run.
    #[error("{node} is {state}; {next}")]
    NotOn { node: NodeName, state: String, next: String },
    /// A node that should have booted.
    #[error("{node} did not boot: {why}. Its console: {console}")]
    NotBooted { node: NodeName, why: String, console: String },
    /// `down` did not do all of it.
    #[error("still here after the lab's end:\n  {}", .0.join("\n  "))]
    Left(Vec<String>),
}

/// Interrupted, as shells say it.
pub(super) const INTERRUPTED: i32 = 130;

impl Refusal {
    /// Told apart by scripts; 1 is everything else and 2 a wrong command line.
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::NotRoot(_) | Self::Machine(_) | Self::Packages { .. } => 3,
            Self::AtWork(_) => 4,
            Self::OtherLab { .. } | Self::Ruins(_) => 5,
            Self::NoLab | Self::NoNode { .. } | Self::NotOn { .. } => 6,
            Self::NotBooted { .. } => 7,
            Self::Left(_) => 8,
        }
    }
}
