//! How machines are brought in, as far as it needs no systemd: the line, the script as shells really run it into a folder that stands for
//! the root, every refusal, and the packages that the control plane hands out.
//!
//! Deliberately absent: units and packages of a booted machine, which a booted machine alone can test.

mod agent;
mod dates;
mod files;
mod line;
mod machine;
mod network;
mod refusals;
mod stranger;
