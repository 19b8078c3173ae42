//! The engine's handle: what every command, driver and observer shares, and the loop that starts drivers when a row asks for one.

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
    held::Held,
    key_rotation::KeyTending,
    keys::Keys,
    port::{ArchiveFiles, NodeTunnels, Nodes, Ports, ReimageHook},
    retention::Retention,
    sealing_rotation::SealingTending,
};

/// Finds operations whose hint was lost. Everything else is pushed.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// What an engine is made of.
pub struct EngineParts {
    /// The id under which this process holds leases: its own, never used before.
    pub replica: ReplicaId,
    /// The rows.
    pub store: Store,
    /// Time, randomness, spawning.
    pub ports: Ports,
    /// The apps.
    pub catalog: Catalog,
    /// The control plane's keys.
    pub keys: Keys,
    /// The way to the nodes.
    pub nodes: Arc<dyn Nodes>,
    /// Streams to ports of nodes.
    pub tunnels: Arc<dyn NodeTunnels>,
    /// Where nodes find this control plane.
    pub endpoints: Endpoints,
    /// Reimages machines that tenants have left; where there is one, they must prove that it did.
    pub reimage_hook: Option<Arc<dyn ReimageHook>>,
    /// Keeps the files of archived history.
    pub archives: Arc<dyn ArchiveFiles>,
    /// How long history is kept.
    pub retention: Retention,
}

/// Where nodes find this control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The API, for example `https://cp.example:7443`.
    pub api_url: String,
    /// The node channel, `host:port`.
    pub channel: String,
    /// Where other replicas reach this one, `host:port`; absent where there can be none.
    pub replica: Option<String>,
}

/// Carries operations out. One per process; cheap to share.
pub struct Engine {
    parts: EngineParts,
    /// The drivers that run here, with what wakes each.
    drivers: Mutex<BTreeMap<OperationId, Arc<Notify>>>,
    /// Told of every connection of a node; wakes the attempts that wait for one, in the order in which they came.
    connections: Notify,
    key_tending: KeyTending,
    sealing_tending: SealingTending,
    held: Held,
    /// Deliveries and withdrawals of access under way.
    access_calls: Arc<FairQueue>,
    stop: CancellationToken,
}

impl Engine {
    /// An engine that does nothing until [`Engine::run`]. From here on its store proves records by its keys.
    pub fn new(parts: EngineParts) -> Arc<Self> {
        parts.store.prove_with(parts.keys.proof());
        Arc::new(Self {
            parts,
            drivers: Mutex::default(),
            connections: Notify::new(),
            key_tending: KeyTending::default(),
            sealing_tending: SealingTending::default(),
            held: Held::default(),
            access_calls: FairQueue::new(access::CALLS),
            stop: CancellationToken::new(),
        })
    }

    /// The rows.
    pub fn store(&self) -> &Store {
        &self.parts.store
    }

    /// Time, randomness, spawning.
    pub fn ports(&self) -> &Ports {
        &self.parts.ports
    }

    /// The apps.
    pub fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    /// The control plane's keys.
    pub fn keys(&self) -> &Keys {
        &self.parts.keys
    }

    /// The way to the nodes.
    pub fn nodes(&self) -> &Arc<dyn Nodes> {
        &self.parts.nodes
    }

    /// What is open to nodes now.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Streams to ports of nodes.
    pub(crate) fn tunnels(&self) -> &Arc<dyn NodeTunnels> {
        &self.parts.tunnels
    }

    /// Reimages machines that tenants have left.
    pub(crate) fn reimage_hook(&self) -> Option<&Arc<dyn ReimageHook>> {
        self.parts.reimage_hook.as_ref()
    }

    /// Keeps the files of archived history.
    pub(crate) fn archive_files(&self) -> &dyn ArchiveFiles {
        &*self.parts.archives
    }

    /// How long history is kept.
    pub fn retention(&self) -> &Retention {
        &self.parts.retention
    }

    /// Where nodes find this control plane.
    pub fn endpoints(&self) -> &Endpoints {
        &self.parts.endpoints
    }

    /// The id under which this process holds leases.
    pub fn replica(&self) -> ReplicaId {
        self.parts.replica
    }

    /// Completes with the next connection of a node after this call.
    pub(crate) fn next_connection(&self) -> Notified<'_> {
        self.connections.notified()
    }

    /// Tells waiting attempts that a node connected.
    pub(crate) fn node_connected(&self, _node: NodeId) {
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        self.connections.notify_waiters();
    }

    /// What this process knows of the task-signing keys it tends.
    pub(crate) fn key_tending(&self) -> &KeyTending {
        &self.key_tending
    }

    /// What this process knows of its sealing keys.
    pub(crate) fn sealing_tending(&self) -> &SealingTending {
        &self.sealing_tending
    }

    /// Permits for deliveries and withdrawals of access.
    pub(crate) fn access_calls(&self) -> &Arc<FairQueue> {
        &self.access_calls
    }

    /// Cancelled when the engine stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Drives every open operation until [`Engine::stop`]: those that rows name at the start, those that changes announce, and, every
    /// [`SWEEP_EVERY`], those whose announcement was lost. Goes on with every allocation on its way at the start. Has nodes that changed
    /// looked at again, whoever changed them.
    pub async fn run(self: &Arc<Self>) {
        let mut changes = self.store().changes();
        // What changed before there was anybody to be told.
        self.nodes().readmit_all();
        let mut has_begun = self.begin_open().await;
        let mut sweep = self.next_sweep(has_begun);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = &mut sweep => {
                    if has_begun {
                        self.sweep().await;
                    } else {
                        has_begun = self.begin_open().await;
                    }
                    sweep = self.next_sweep(has_begun);
                }
                change = changes.recv() => match change {
                    Ok(Change::Operation(id)) => self.activate(id),
                    Ok(Change::Node(id)) => {
                        self.nodes().readmit(id);
                        // It may have connected to another replica: whoever waits for a node tries again.
                        self.wake_waiting();
                    }
                    Ok(Change::Event { .. } | Change::Token(_) | Change::Keys | Change::Sealing) => {}
                    Ok(Change::Missed) => {
                        self.wake_waiting();
                        self.nodes().readmit_all();
                        self.sweep().await;
                    }
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(missed, "hints were missed; reading rows");
                        self.nodes().readmit_all();
                        self.sweep().await;
                    }
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// Ends all drivers where they are. Their operations continue from rows at the next start.
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
            // Removes the entry also when the driver panics: the sweep then starts another.
            let _entry = DriverEntry { engine: engine.clone(), id };
            Driver::new(engine.clone(), id, wake).run().await;
        };
        self.ports().runtime.spawn("operation driver", Box::pin(future));
    }

    /// Goes on with what is open at the start; `false` if the database could not be read, for which it does not end.
    async fn begin_open(self: &Arc<Self>) -> bool {
        let begun = self.go_on_with_open().await;
        if let Err(error) = &begun {
            tracing::warn!(%error, "what is open could not be read; it is read again");
        }
        begun.is_ok()
    }

    /// Goes on with every open operation and with every allocation on its way, here from now on.
    pub(crate) async fn go_on_with_open(self: &Arc<Self>) -> Result<(), StoreError> {
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

    fn next_sweep(&self, has_begun: bool) -> futures::future::BoxFuture<'static, ()> {
        let wait = if has_begun { SWEEP_EVERY } else { STORE_RETRY };
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
