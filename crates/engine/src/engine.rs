//! The engine's handle, shared by commands, drivers and observers, and the loop that starts a driver when a row needs one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::{NodeId, OperationId, ReplicaId};
use gpuaas_store::{Change, Store, StoreError};
use tokio::sync::{Notify, broadcast::error::RecvError, futures::Notified};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::Catalog,
    commands::access,
    driver::{Driver, STORE_RETRY},
    fair_queue::FairQueue,
    key_rotation::KeyRotationState,
    keys::Keys,
    open_access::OpenAccess,
    port::{ArchiveFiles, NodeTunnels, Nodes, Ports, ReimageHook},
    retention::Retention,
    sealing_rotation::SealingRotationState,
};

/// Interval of the sweep that finds operations whose hint was lost. Everything else is pushed.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

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
    drivers: Mutex<BTreeMap<OperationId, Arc<Notify>>>,
    /// Notified when any node connects or changes; wakes the attempts that wait for a node, in arrival order.
    connections: Notify,
    key_rotation: KeyRotationState,
    sealing_rotation: SealingRotationState,
    open_access: OpenAccess,
    /// Limits concurrent deliveries and withdrawals of access.
    access_calls: Arc<FairQueue>,
    stop: CancellationToken,
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
            open_access: OpenAccess::default(),
            access_calls: FairQueue::new(access::CALL_LIMITS),
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
    pub(crate) fn open_access(&self) -> &OpenAccess {
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

    fn wake_waiting(&self) {
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

    /// Permits for deliveries and withdrawals of access.
    pub(crate) fn access_calls(&self) -> &Arc<FairQueue> {
        &self.access_calls
    }

    /// Cancelled when the engine stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Drives every open operation until [`Engine::stop`]: those open at the start, those announced by changes, and, every [`SWEEP_EVERY`],
    /// those whose announcement was lost. Continues every unfinished allocation at the start. Asks the channel to check changed nodes
    /// again, no matter which replica changed them.
    pub async fn run(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        // Covers the changes made before the subscription to them existed.
        self.nodes().recheck_all();
        if let Err(error) = self.update_former_statuses().await {
            tracing::warn!(%error, "the status of workloads of an earlier version was not updated; the next start tries again");
        }
        let mut has_resumed = self.try_resume_open().await;
        let mut sweep = self.next_sweep(has_resumed);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = &mut sweep => {
                    if has_resumed {
                        self.sweep().await;
                    } else {
                        has_resumed = self.try_resume_open().await;
                    }
                    sweep = self.next_sweep(has_resumed);
                }
                change = changes.recv() => match change {
                    Ok(Change::Operation(id)) => self.activate(id),
                    Ok(Change::Node(id)) => {
                        self.nodes().recheck(id);
                        // The node may have connected to another replica, so all waiting attempts try again.
                        self.wake_waiting();
                    }
                    Ok(Change::Event { .. } | Change::Token(_) | Change::Keys | Change::Sealing) => {}
                    Ok(Change::Missed) => {
                        self.wake_waiting();
                        self.nodes().recheck_all();
                        self.sweep().await;
                    }
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(missed, "hints were missed; reading rows");
                        self.nodes().recheck_all();
                        self.sweep().await;
                    }
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// Stops all drivers where they are. Their operations continue from rows at the next start.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Wakes the operation's driver, or starts one here.
    pub(crate) fn activate(self: &Arc<Self>, id: OperationId) {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = drivers.get(&id) {
            wake.notify_one();
            return;
        }
        let wake = Arc::new(Notify::new());
        drivers.insert(id, wake.clone());
        drop(drivers);
        let engine = self.clone();
        let future = async move {
            // Removes the entry even if the driver panics: the sweep then starts another.
            let _entry = DriverEntry { engine: engine.clone(), id };
            Driver::new(engine.clone(), id, wake).run().await;
        };
        self.ports().runtime.spawn("operation driver", Box::pin(future));
    }

    /// Continues open work at the start. Returns `false` if the database could not be read; the caller then tries again.
    async fn try_resume_open(self: &Arc<Self>) -> bool {
        let begun = self.resume_open().await;
        if let Err(error) = &begun {
            tracing::warn!(%error, "open operations could not be read; trying again");
        }
        begun.is_ok()
    }

    /// Continues every open operation and every unfinished allocation on this replica.
    pub(crate) async fn resume_open(self: &Arc<Self>) -> Result<(), StoreError> {
        self.activate_open().await?;
        self.provision_open().await
    }

    async fn activate_open(self: &Arc<Self>) -> Result<(), StoreError> {
        let open = self.store().read().await?.open_operations().await?;
        for operation in open {
            self.activate(operation.id);
        }
        Ok(())
    }

    async fn sweep(self: &Arc<Self>) {
        if let Err(error) = self.activate_open().await {
            tracing::warn!(%error, "the safety sweep could not read open operations");
        }
        if let Err(error) = self.close_abandoned_tasks().await {
            tracing::warn!(%error, "abandoned tasks could not be closed");
        }
    }

    fn next_sweep(&self, has_resumed: bool) -> futures::future::BoxFuture<'static, ()> {
        let wait = if has_resumed { SWEEP_EVERY } else { STORE_RETRY };
        self.ports().runtime.sleep_until(self.ports().clock.now().plus(wait))
    }
}

struct DriverEntry {
    engine: Arc<Engine>,
    id: OperationId,
}

impl Drop for DriverEntry {
    fn drop(&mut self) {
        self.engine.drivers.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
