//! Tests of node installation, as far as it needs no systemd: the command line, the script run by real shells into a folder that serves as
//! the root, every refusal, and the packages that the control plane serves.
//!
//! Deliberately absent: units and packages on a booted machine, which need a booted machine.

mod agent;
mod dates;
mod files;
mod impostor;
mod line;
mod machine;
mod network;
mod refusals;
