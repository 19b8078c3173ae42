//! The app's description in the catalog.

use gpuaas_model::TaskType;
use gpuaas_planner::Manifest;

use crate::{
    config::Config,
    operation,
    placement::{AddedMembers, Placement},
    schema,
};

/// Phases in their order: deployment, changes of a running cluster, readiness, decommission.
pub(crate) mod phase {
    pub(crate) const PLACEMENT_VALIDATED: &str = "placement_validated";
    pub(crate) const SERVER_BOOTSTRAP_REQUESTED: &str = "server_bootstrap_requested";
    pub(crate) const SERVER_BOOTSTRAPPING: &str = "server_bootstrapping";
    pub(crate) const SERVER_READY_FOR_AGENT_JOIN: &str = "server_ready_for_agent_join";
    pub(crate) const AGENT_JOIN_REQUESTED: &str = "agent_join_requested";
    pub(crate) const AGENT_JOINING: &str = "agent_joining";
    pub(crate) const KUBECONFIG_DELIVERY_REQUESTED: &str = "kubeconfig_delivery_requested";
    pub(crate) const MEMBER_DRAINING: &str = "member_draining";
    pub(crate) const MEMBER_REMOVING: &str = "member_removing";
    pub(crate) const MEMBERS_STOPPING: &str = "members_stopping";
    pub(crate) const STOPPED: &str = "stopped";
    pub(crate) const SERVER_STARTING: &str = "server_starting";
    pub(crate) const AGENTS_STARTING: &str = "agents_starting";
    pub(crate) const RECONCILING: &str = "reconciling";
    pub(crate) const SERVER_REPAIRING: &str = "server_repairing";
    pub(crate) const AGENTS_REPAIRING: &str = "agents_repairing";
    pub(crate) const READY: &str = "ready";
    pub(crate) const AGENTS_REMOVING: &str = "agents_removing";
    pub(crate) const SERVER_REMOVING: &str = "server_removing";
    pub(crate) const REMOVED: &str = "removed";

    pub(crate) const ALL: [&str; 20] = [
        PLACEMENT_VALIDATED,
        SERVER_BOOTSTRAP_REQUESTED,
        SERVER_BOOTSTRAPPING,
        SERVER_READY_FOR_AGENT_JOIN,
        AGENT_JOIN_REQUESTED,
        AGENT_JOINING,
        KUBECONFIG_DELIVERY_REQUESTED,
        MEMBER_DRAINING,
        MEMBER_REMOVING,
        MEMBERS_STOPPING,
        STOPPED,
        SERVER_STARTING,
        AGENTS_STARTING,
        RECONCILING,
        SERVER_REPAIRING,
        AGENTS_REPAIRING,
        READY,
        AGENTS_REMOVING,
        SERVER_REMOVING,
        REMOVED,
    ];
}

/// File with the release's program, scripts and units.
pub(crate) const ARCHIVE: &str = "rke2.linux-amd64.tar.gz";
/// File with the release's container images.
pub(crate) const IMAGES: &str = "rke2-images.linux-amd64.tar.zst";
/// File with the release's digests.
const SUMS: &str = "sha256sum-amd64.txt";

/// Returns the oldest version of a task's parameters that suffices. A stop must be able to end pods.
const fn oldest_schema(task: TaskType) -> u32 {
    if matches!(task, TaskType::Rke2Stop) { 2 } else { 1 }
}

pub(crate) fn manifest() -> Manifest {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Manifest {
        slug: "rke2".to_owned(),
        name: "Self-managed Kubernetes (RKE2)".to_owned(),
        summary: "One server, any number of agents, a kubeconfig; you operate the cluster.".to_owned(),
        placement_schema: schema::of::<Placement>(),
        added_members_schema: schema::of::<AddedMembers>(),
        config_schema: schema::of::<Config>(),
        promises: texts(&[
            "node placement",
            "ordered cluster bootstrap",
            "kubeconfig delivery",
            "basic workload and member status",
        ]),
        not_promised: texts(&[
            "managed cluster operations",
            "responsibility for the cluster's health",
            "version upgrades in place",
            "embedded cluster dashboard",
            "storage classes or persistent volumes",
            "a stable external endpoint",
        ]),
        phases: texts(&phase::ALL),
        tasks: [
            TaskType::Preflight,
            TaskType::Residue,
            TaskType::ArtifactFetch,
            TaskType::Rke2Install,
            TaskType::Rke2Configure,
            TaskType::Rke2Start,
            TaskType::Rke2Stop,
            TaskType::Rke2Enable,
            TaskType::Rke2KubeconfigRead,
            TaskType::Rke2Uninstall,
        ]
        .map(|task| (task, oldest_schema(task)))
        .to_vec(),
        operations: operation::specs(),
        release_files: texts(&[ARCHIVE, IMAGES]),
        release_sums: SUMS.to_owned(),
    }
}
