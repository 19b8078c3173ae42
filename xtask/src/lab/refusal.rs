//! Errors of the lab that have their own exit codes.

use super::name::NodeName;

/// Why a lab command was refused or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The user is not root.
    #[error("the lab makes namespaces, mounts and links, and needs root: `sudo -E cargo xtask lab …`{0}")]
    NotRoot(String),
    /// The machine lacks something that the lab cannot make up for.
    #[error("this machine cannot hold a lab: {0}")]
    Machine(String),
    /// Programs are missing.
    #[error("missing: {programs}. Install the Debian packages {packages}")]
    Packages { programs: String, packages: String },
    /// Another lab command is running.
    #[error("another lab command is at work (process {0}); wait for its end")]
    AtWork(i32),
    /// A lab with other nodes is up.
    #[error("a lab of {there} is up, and {asked} was asked for. `cargo xtask lab down` removes it")]
    OtherLab { there: String, asked: String },
    /// Remains of an unfinished or damaged lab exist.
    #[error("something of an earlier lab is still here ({0}). `cargo xtask lab down` removes it")]
    Ruins(String),
    /// There is no lab.
    #[error("there is no lab. `cargo xtask lab up` makes one")]
    NoLab,
    /// The lab has no node of this name.
    #[error("the lab has no node {asked}; it has {there}")]
    NoNode { asked: NodeName, there: String },
    /// The node is not running.
    #[error("{node} is {state}; {next}")]
    NotOn { node: NodeName, state: String, next: String },
    /// The node did not boot.
    #[error("{node} did not boot: {why}. Its console: {console}")]
    NotBooted { node: NodeName, why: String, console: String },
    /// `down` could not remove everything.
    #[error("still here after the lab's end:\n  {}", .0.join("\n  "))]
    Left(Vec<String>),
}

/// Exit code after an interrupt, as in shells: 128 + SIGINT.
pub(super) const INTERRUPTED: i32 = 130;

impl Refusal {
    /// Exit code for scripts; 1 stands for all other errors and 2 for a wrong command line.
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
