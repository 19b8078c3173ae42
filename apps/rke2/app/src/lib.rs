//! *Self-managed Kubernetes (RKE2)*: its requirements, the order of its steps, the outputs of their results, and the meaning of its
//! failures.
//!
//! Pure: no I/O, no clock, no randomness. Golden files contain the rendered configurations; tests cover every plan and every fault.
//!
//! Deliberately absent: calls to a cluster (`app-rke2-effects`), the execution of a task on a host (`app-rke2-handlers`), and day-2 operations that are
//! not promised yet.

mod app;
mod call;
mod cluster;
mod config;
mod describe;
mod drift;
mod faults;
mod manifest;
mod observed;
mod operation;
mod placement;
mod plan;
mod render;
mod requirements;
mod results;
mod schema;
mod size;
mod subjects;

pub use app::Rke2;
pub use call::Rke2Call;
pub use faults::{Counts, FAULTS, FaultRow, LogSpan, OTHER_FAULTS, Proof, Remedy, Subject};
pub use observed::{ObservedCluster, ObservedKubeNode, compared_labels};
pub use plan::Deadlines;

/// Names of a workload's facts, secrets and components.
pub mod names {
    /// Fact: SHA-256 of the cluster's CA, as K10 tokens contain it.
    pub const CA_SHA256: &str = "ca_sha256";
    /// Secret: token with which servers authenticate each other.
    pub const SERVER_TOKEN: &str = "server-token";
    /// Secret: token with which agents join, in its short form.
    pub const AGENT_TOKEN: &str = "agent-token";
    /// Secret: token with which agents join, in the full K10 form that pins the cluster's CA.
    pub const JOIN_TOKEN: &str = "join-token";
    /// Secret: the distribution's own admin kubeconfig. It never leaves the sealed store.
    pub const ADMIN_KUBECONFIG: &str = "admin-kubeconfig";
    /// Returns the name of a fact: RKE2 was completely installed for a member, and may have run since.
    pub fn installed(member: &str) -> String {
        format!("installed/{member}")
    }

    /// Returns the name of a fact: the member's KubeNode was ready once.
    pub fn joined(member: &str) -> String {
        format!("joined/{member}")
    }

    /// Returns the name of a fact: the uid of the member's KubeNode, as the last call that saw it returned it.
    pub fn kube_node_uid(member: &str) -> String {
        format!("kube_node_uid/{member}")
    }

    /// Returns the name of a fact: when the member's node started RKE2, in milliseconds by its own clock; null if its agent does not say so.
    pub fn started(member: &str) -> String {
        format!("started/{member}")
    }

    /// Returns the name of a fact: the platform has cordoned the member's KubeNode, and nobody has asked it to uncordon it.
    pub fn cordoned(member: &str) -> String {
        format!("cordoned/{member}")
    }

    /// Component of the control plane's member.
    pub const SERVER: &str = "server";
    /// Component of every other member.
    pub const AGENT: &str = "agent";
}
