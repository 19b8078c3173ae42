//! Errors of the lab that have their own exit codes.

use super::name::NodeName;

/// Why a lab command was refused or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The user is not root.
    #[error("the lab creates namespaces, mounts and links, which needs root: run `sudo -E cargo xtask lab …`{0}")]
    NotRoot(String),
    /// The machine lacks something that the lab cannot make up for.
    #[error("this machine cannot run a lab: {0}")]
    Machine(String),
    /// Programs are missing.
    #[error("missing programs: {programs}; install the Debian packages {packages}")]
    Packages { programs: String, packages: String },
    /// The disk of the nodes' data is too full for what runs on the nodes.
    #[error(
        "the disk of {path} has {free} bytes free, but a deployment on the lab's {nodes} nodes needs {needed}; free some space \
         (`cargo clean` removes what earlier builds left)",
        path = super::place::DATA
    )]
    Space { free: u64, needed: u64, nodes: u8 },
    /// Another lab command is running.
    #[error("another lab command is running (process {0}); wait until it ends")]
    Locked(i32),
    /// A lab with other nodes is up.
    #[error("a lab of {existing} is up, but {requested} was requested; remove the lab with `cargo xtask lab down`")]
    OtherLab { existing: String, requested: String },
    /// Remains of an unfinished or damaged lab exist.
    #[error("remains of an earlier lab exist ({0}); remove them with `cargo xtask lab down`")]
    Remains(String),
    /// There is no lab.
    #[error("there is no lab; create one with `cargo xtask lab up`")]
    NoLab,
    /// The lab has no node of this name.
    #[error("the lab has no node {requested}; it has {existing}")]
    NoNode { requested: NodeName, existing: String },
    /// The node is not running.
    #[error("{node} is {state}; {next}")]
    NotRunning { node: NodeName, state: String, next: String },
    /// The node did not boot.
    #[error("{node} did not boot: {why}; see its console output in {console}")]
    NotBooted { node: NodeName, why: String, console: String },
    /// `down` could not remove everything.
    #[error("not removed with the lab:\n  {}", .0.join("\n  "))]
    Residue(Vec<String>),
}

/// Exit code after an interrupt, as in shells: 128 + SIGINT.
pub(super) const INTERRUPTED: i32 = 130;

impl Refusal {
    /// Exit code for scripts; 1 stands for all other errors and 2 for a wrong command line.
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::NotRoot(_) | Self::Machine(_) | Self::Packages { .. } | Self::Space { .. } => 3,
            Self::Locked(_) => 4,
            Self::OtherLab { .. } | Self::Remains(_) => 5,
            Self::NoLab | Self::NoNode { .. } | Self::NotRunning { .. } => 6,
            Self::NotBooted { .. } => 7,
            Self::Residue(_) => 8,
        }
    }
}
