//! The platform as its users meet it: real processes, real TLS, real files, and where a test deploys, a genuine Kubernetes control plane inside
//! the stand-in.

mod bad_input;
mod dev;
mod distribution_faults;
mod nodes;
mod placements;
mod raw;
mod workloads;
mod world;
