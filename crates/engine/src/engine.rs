//! The engine's handle, shared by commands, drivers and observers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use gpuaas_model::{NodeId, OperationId, ReplicaId};
use gpuaas_store::Store;
use tokio::sync::{Notify, Semaphore, futures::Notified};
use tokio_util::sync::CancellationToken;

use crate::{
    access_registry::OpenAccess,
    audit_chain::SealerMemory,
    catalog::Catalog,
    drift_followers::DriftFollowers,
    fair_queue::{FairQueue, QueueLimits},
    key_rotation_state::KeyRotationState,
    keys::Keys,
    port::{ArchiveFiles, NodeTunnels, Nodes, Ports, ReimageHook},
    retention_times::Retention,
    sealing_rotation_state::SealingRotationState,
    shown_plans::ShownPlans,
};

/// Delay before rows are read again after a store failure.
pub(crate) const STORE_RETRY: Duration = Duration::from_secs(1);
/// Limits on concurrent deliveries and revocations of access: few, because each may wait for a tenant's cluster for 20 s; one per workload,
/// and never all for one project. Waiters are mostly repeated clicks.
const ACCESS_CALL_LIMITS: QueueLimits =
    QueueLimits { permits: 32, per_project: 8, per_workload: 1, waiting: 256, waiting_per_workload: 4 };
/// Limits on concurrent comparisons of workloads with their clusters, apart from those of access: comparisons must not delay a
/// kubeconfig.
const COMPARISON_LIMITS: QueueLimits =
    QueueLimits { permits: 32, per_project: 8, per_workload: 1, waiting: 256, waiting_per_workload: 4 };

/// Limits on workloads that are checked for drift at the same time: after a restart all nodes hint at once, and each check may wait 30 s for
/// a node that does not answer.
const DRIFT_CHECK_LIMITS: QueueLimits =
    QueueLimits { permits: 64, per_project: 16, per_workload: 1, waiting: 4_096, waiting_per_workload: 1 };

/// Limit on concurrent verifications of the audit: each reads the whole audit, and a second one would find the same.
const AUDIT_VERIFICATIONS_MAX: usize = 1;

/// The dependencies of an [`Engine`].
pub struct EngineParts {
    /// The id under which this process holds leases: unique to the process, never reused.
    pub replica: ReplicaId,
    /// The database.
    pub store: Store,
    /// Clock, randomness, and the runtime that spawns futures.
    pub ports: Ports,
    /// The apps that this control plane offers.
    pub catalog: Catalog,
    /// The control plane's keys.
    pub keys: Keys,
    /// Sends tasks and key sets to nodes.
    pub nodes: Arc<dyn Nodes>,
    /// Opens streams to ports of nodes.
    pub tunnels: Arc<dyn NodeTunnels>,
    /// The addresses that nodes connect to.
    pub endpoints: Endpoints,
    /// Reimages machines that tenants have left. If set, such a machine must prove that it was reimaged.
    pub reimage_hook: Option<Arc<dyn ReimageHook>>,
    /// Stores the files of archived history.
    pub archives: Arc<dyn ArchiveFiles>,
    /// How long history is kept.
    pub retention: Retention,
}

/// The addresses at which nodes and replicas reach this control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The API, for example `https://cp.example:7443`.
    pub api_url: String,
    /// The node channel, `host:port`.
    pub channel: String,
    /// Where other replicas reach this one, `host:port`; `None` if the store allows only one replica.
    pub replica: Option<String>,
}

/// Executes operations. One per process; cheap to share.
pub struct Engine {
    parts: EngineParts,
    /// The drivers that run here, each with its wake-up handle.
    pub(crate) drivers: Mutex<BTreeMap<OperationId, Arc<Notify>>>,
    /// Notified when any node connects or changes; wakes the attempts that wait for a node, in arrival order.
    connections: Notify,
    key_rotation: KeyRotationState,
    sealing_rotation: SealingRotationState,
    open_access: Arc<OpenAccess>,
    /// Limits concurrent deliveries and revocations of access.
    access_calls: Arc<FairQueue>,
    /// Limits concurrent comparisons of workloads with their clusters.
    comparisons: Arc<FairQueue>,
    /// The plans that were shown lately.
    shown_plans: ShownPlans,
    drift_followers: DriftFollowers,
    /// Limits concurrent drift checks.
    drift_checks: Arc<FairQueue>,
    /// Limits concurrent verifications of the audit.
    audit_verifications: Semaphore,
    sealer_memory: SealerMemory,
    pub(crate) stop: CancellationToken,
}

impl Engine {
    /// Creates an engine that is idle until [`Engine::run`]. From here on its store proves records with the engine's keys.
    pub fn new(parts: EngineParts) -> Arc<Self> {
        parts.store.set_record_proof(parts.keys.proof());
        Arc::new(Self {
            parts,
            drivers: Mutex::default(),
            connections: Notify::new(),
            key_rotation: KeyRotationState::default(),
            sealing_rotation: SealingRotationState::default(),
            open_access: Arc::default(),
            access_calls: FairQueue::new(ACCESS_CALL_LIMITS),
            comparisons: FairQueue::new(COMPARISON_LIMITS),
            shown_plans: ShownPlans::default(),
            drift_followers: DriftFollowers::default(),
            drift_checks: FairQueue::new(DRIFT_CHECK_LIMITS),
            audit_verifications: Semaphore::new(AUDIT_VERIFICATIONS_MAX),
            sealer_memory: SealerMemory::default(),
            stop: CancellationToken::new(),
        })
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// Clock, randomness and runtime.
    pub fn ports(&self) -> &Ports {
        &self.parts.ports
    }

    /// The apps that this control plane offers.
    pub fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    /// The control plane's keys.
    pub fn keys(&self) -> &Keys {
        &self.parts.keys
    }

    /// Sends tasks and key sets to nodes.
    pub fn nodes(&self) -> &Arc<dyn Nodes> {
        &self.parts.nodes
    }

    /// The streams and watches to nodes that are open now.
    pub(crate) fn open_access(&self) -> &Arc<OpenAccess> {
        &self.open_access
    }

    /// Opens streams to ports of nodes.
    pub(crate) fn tunnels(&self) -> &Arc<dyn NodeTunnels> {
        &self.parts.tunnels
    }

    /// Reimages machines that tenants have left.
    pub(crate) fn reimage_hook(&self) -> Option<&Arc<dyn ReimageHook>> {
        self.parts.reimage_hook.as_ref()
    }

    /// Stores the files of archived history.
    pub(crate) fn archive_files(&self) -> &dyn ArchiveFiles {
        &*self.parts.archives
    }

    /// How long history is kept.
    pub fn retention(&self) -> &Retention {
        &self.parts.retention
    }

    /// The addresses at which nodes and replicas reach this control plane.
    pub fn endpoints(&self) -> &Endpoints {
        &self.parts.endpoints
    }

    /// The id under which this process holds leases.
    pub fn replica(&self) -> ReplicaId {
        self.parts.replica
    }

    /// Completes when any node connects or changes after this call.
    pub(crate) fn next_connection(&self) -> Notified<'_> {
        self.connections.notified()
    }

    /// Wakes the attempts that wait for a node's connection.
    pub(crate) fn node_connected(&self, _node: NodeId) {
        self.wake_waiting();
    }

    pub(crate) fn wake_waiting(&self) {
        self.connections.notify_waiters();
    }

    /// This process's state of the rotation of task-signing keys.
    pub(crate) fn key_rotation(&self) -> &KeyRotationState {
        &self.key_rotation
    }

    /// This process's state of the rotation of sealing keys.
    pub(crate) fn sealing_rotation(&self) -> &SealingRotationState {
        &self.sealing_rotation
    }

    /// Permits for deliveries and revocations of access.
    pub(crate) fn access_calls(&self) -> &Arc<FairQueue> {
        &self.access_calls
    }

    /// Permits for comparisons of workloads with their clusters.
    pub(crate) fn comparisons(&self) -> &Arc<FairQueue> {
        &self.comparisons
    }

    /// The plans that this process has shown lately.
    pub(crate) fn shown_plans(&self) -> &ShownPlans {
        &self.shown_plans
    }

    /// The workloads whose drift this process follows.
    pub(crate) fn drift_followers(&self) -> &DriftFollowers {
        &self.drift_followers
    }

    /// Permits for drift checks of workloads.
    pub(crate) fn drift_checks(&self) -> &Arc<FairQueue> {
        &self.drift_checks
    }

    /// Permits for verifications of the audit.
    pub(crate) fn audit_verifications(&self) -> &Semaphore {
        &self.audit_verifications
    }

    /// What this process remembers of the chain of the audit.
    pub(crate) fn sealer_memory(&self) -> &SealerMemory {
        &self.sealer_memory
    }

    /// Cancelled when the engine stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Stops all drivers where they are. Their operations continue from rows at the next start.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}
