//! The init of a sandbox node: stands for systemd in one folder, for units of the few directives that matter here.
//!
//! Guarantees: units behave as systemd's own were seen to (auto-restart without end, NRestarts, exec-condition skips, KillMode=process,
//! starts that never notify); when the init ends, no process of its sandbox remains; it outlives the agent and the control plane.
//!
//! Deliberately absent: dependencies between units, sockets, timers, cgroups, and everything that RKE2's units and the agent's do not use.

mod init;
mod journal;
mod process;
mod serve;
mod supervisor;
pub mod systemctl;
mod unit;
mod unit_file;

pub use init::{InitError, InitOptions, run};
