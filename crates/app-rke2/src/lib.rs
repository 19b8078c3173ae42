//! *Self-managed Kubernetes (RKE2)*: what it asks for, in which order it is brought up, what its answers teach, what its failures mean.
//!
//! Pure: no I/O, no clock, no randomness. Golden files hold the configurations that it renders, tests every plan and every fault.
//!
//! Deliberately absent: calls to a cluster (`app-rke2-effects`), what a task does on a host (`agent`), and day-2 operations that are not
//! promised yet.

mod app;
mod config;
mod faults;
mod learn;
mod manifest;
mod placement;
mod plan;
mod render;
mod size;
mod wants;

pub use app::Rke2;
pub use faults::{During, FAULTS, FaultRow};
pub use plan::Deadlines;

/// Names under which facts and secrets of a workload are kept.
pub mod names {
    /// Fact: SHA-256 of the cluster's CA, as K10 tokens carry it.
    pub const CA_SHA256: &str = "ca_sha256";
    /// Secret: what servers authenticate each other with.
    pub const SERVER_TOKEN: &str = "server-token";
    /// Secret: what agents join with, in its short form.
    pub const AGENT_TOKEN: &str = "agent-token";
    /// Secret: what agents join with, in the full K10 form that pins the cluster's CA.
    pub const JOIN_TOKEN: &str = "join-token";
    /// Secret: the distribution's own admin kubeconfig. It never leaves the sealed store.
    pub const ADMIN_KUBECONFIG: &str = "admin-kubeconfig";
    /// Fact: that RKE2 was laid out whole for a member: from then on it may have run.
    pub fn installed(member: &str) -> String {
        format!("installed/{member}")
    }

    /// The component of the control plane's member.
    pub const SERVER: &str = "server";
    /// The component of every other member.
    pub const AGENT: &str = "agent";
}
