//! What a machine tells of itself in its own files: `/proc`, `/sys` and a few under `/etc`. Nothing here changes anything but kernel
//! parameters ([`Tree::set_sysctl`]) and one file that a measurement makes and removes.
//!
//! Guarantees: every look is bounded in time and bytes; what is not there is told as absent, never guessed; a sandbox is told nothing of its
//! machine as its own.
//!
//! Deliberately absent: what is good or bad about it (the agent's preflight judges), and what the port itself tells: units, processes, listeners,
//! links, rules.

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
pub use modules::{ModuleState, load_module, module_state};
pub use mounts::{Mount, data_disk, file_system, file_systems, mounts};
pub use network::{default_route, link_mtu};
pub use resolver::{Resolver, resolver};
pub use tree::Tree;
pub use writes::{WriteLimits, write_latency};
