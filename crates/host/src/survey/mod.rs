//! The facts that a machine reports in its own files: `/proc`, `/sys` and a few under `/etc`. Nothing here changes the machine, apart from
//! kernel parameters ([`Tree::set_sysctl`]) and a file that a measurement creates and removes.
//!
//! Guarantees: every read is bounded in time and bytes; missing facts are reported as absent and never guessed; a sandbox does not report
//! its machine's devices, disks and routes as its own.
//!
//! Deliberately absent: any judgement of the facts (the agent's preflight does that), and facts that [`crate::Host`] reports itself: units,
//! processes, listeners, links, rules.

mod cpu;
mod gpu;
mod modules;
mod mounts;
mod network;
mod resolver;
mod tree;
mod writes;

pub use cpu::{Cpus, cpus, product, swap_bytes};
pub use gpu::{driver_version, gpus};
pub use modules::{ModuleState, module_state};
pub use mounts::{Mount, data_disk, file_system, file_systems, mounts};
pub use network::{default_route, link_mtu};
pub use resolver::{Resolver, resolver};
pub use tree::Tree;
pub use writes::{WriteLimits, write_latency};
