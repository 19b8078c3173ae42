//! The init of a sandbox node: replaces systemd in one folder, for units with the few directives that matter here.
//!
//! Guarantees: units behave as observed with systemd (endless auto-restart, NRestarts, exec-condition skips, KillMode=process, starts that
//! never notify); when the init exits, it ends every process of its sandbox; the init outlives the agent and, without a lifeline, the
//! control plane.
//!
//! Deliberately absent: dependencies between units, sockets, timers, cgroups, and everything that neither RKE2's units nor the agent's use.

mod init;
mod journal;
mod process;
mod serve;
mod supervisor;
pub mod systemctl;
mod unit;
mod unit_file;
mod units;

pub use init::{InitError, InitOptions, run};
