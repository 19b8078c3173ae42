//! The platform as its users meet it: real processes, real TLS, real files, and where a test deploys, a genuine Kubernetes control plane inside
//! the stand-in.

mod artifacts;
mod backups;
mod bad_input;
mod canaries;
mod cancels;
mod dev;
mod distribution_faults;
mod fleet;
mod health;
mod hostile;
mod hostile_nodes;
mod idempotency;
mod keys;
mod kills;
mod nodes;
mod operations;
mod placements;
mod raw;
mod refusals;
mod replicas;
mod restarts;
mod roles;
mod service_accounts;
mod strangers;
mod streams;
mod support;
mod workloads;
mod world;
