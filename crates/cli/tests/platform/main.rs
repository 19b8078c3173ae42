//! The platform as its users meet it: real processes, real TLS, real files, and where a test deploys, a genuine Kubernetes control plane inside
//! the stand-in.

mod addresses;
mod artifacts;
mod backups;
mod bad_input;
mod canaries;
mod cancels;
mod clocks;
mod dev;
mod disk_full;
mod distribution_faults;
mod fleet;
mod health;
mod hostile;
mod hostile_nodes;
mod idempotency;
mod keys;
mod kills;
mod kubectl;
mod machines;
mod nodes;
mod operations;
mod placements;
mod raw;
mod refusals;
mod replicas;
mod restarts;
mod roles;
mod service_accounts;
mod small_disk;
mod stops;
mod strangers;
mod streams;
mod support;
mod workloads;
mod world;
