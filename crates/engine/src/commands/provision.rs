//! Brings a requested allocation to `active`, which it becomes after the node's inspection. The findings of the preflight are stored with
//! the node. Blocking ones prevent placements, not the allocation.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{
    AllocationEvent, AllocationId, AllocationState, Code, Coded, Connectivity, CorrelationId, EventKind,
};
use gpuaas_store::{AllocationRecord, NodeRecord, Tx};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::inspect::Inspected;
use crate::{
    dispatch::{Origin, Outgoing},
    effects::ProgressSink,
    engine::{Engine, STORE_RETRY},
    error::{CommandError, EngineError},
    findings, ownership,
    record::EventScope,
    waiting,
};

/// Longer than an inspection with its grace, so that the lease needs no renewal.
const PROVISION_LEASE_TTL: Duration = Duration::from_secs(90);

impl Engine {
    /// Inspects the node of a requested allocation in the background. If the control plane dies meanwhile, [`Engine::run`] repeats it at
    /// the next start.
    pub fn provision(self: &Arc<Self>, allocation: AllocationId, correlation: CorrelationId) {
        let engine = self.clone();
        let work = async move {
            while let Err(error) = engine.provision_now(allocation, correlation).await {
                tracing::warn!(%allocation, %error, "an allocation could not be provisioned yet");
                if !matches!(error.code(), Code::DiskFull | Code::Unavailable) {
                    return;
                }
                tokio::select! {
                    biased;
                    () = engine.stopping().cancelled() => return,
                    () = engine.ports().runtime.sleep_until(engine.ports().clock.now().plus(STORE_RETRY)) => {}
                }
            }
        };
        self.ports().runtime.spawn("allocation provisioning", Box::pin(work));
    }

    /// Continues every unfinished allocation, after the start of this process or the death of another replica.
    pub(crate) async fn provision_open(self: &Arc<Self>) -> Result<(), EngineError> {
        let mut reader = self.store().read().await?;
        // Reads both states before it starts anything, so that a failure here leaves nothing half done.
        let mut open = reader.every_allocation_in(AllocationState::Requested).await?;
        open.extend(reader.every_allocation_in(AllocationState::Provisioning).await?);
        for allocation in open {
            let correlation = CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy);
            self.provision(allocation.id, correlation);
        }
        Ok(())
    }

    async fn provision_now(&self, id: AllocationId, correlation: CorrelationId) -> Result<(), CommandError> {
        let lease = format!("allocation/{id}");
        if self.store().acquire_lease(&lease, self.replica(), PROVISION_LEASE_TTL).await?.is_none() {
            // Another replica inspects it. If that one dies, its lease is released with it and another replica continues.
            return Ok(());
        }
        let provisioned = self.inspect(id, correlation).await;
        self.store().release_lease(&lease, self.replica()).await?;
        provisioned
    }

    async fn inspect(&self, id: AllocationId, correlation: CorrelationId) -> Result<(), CommandError> {
        let Some(sent) = self.begin_inspection(id, correlation).await? else { return Ok(()) };
        let (task, progress): (_, ProgressSink) = (sent.task.clone(), Arc::new(|_| {}));
        let end = self.follow_task(sent, &progress, &CancellationToken::new()).await;
        let mut tx = self.store().begin().await?;
        self.record_task_end(&mut tx, task.clone(), &end).await?;
        let allocation = tx.allocation(id).await?;
        if allocation.state == AllocationState::Provisioning {
            let (event, detail) = match self.store_inspection(&mut tx, &task, &end).await? {
                Inspected::Stored(node) => (AllocationEvent::Passed, blocking_detail(&node)),
                Inspected::Unusable(why) => (AllocationEvent::Failed, Some(why)),
            };
            change(&mut tx, allocation, event, detail, correlation).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn begin_inspection(
        &self,
        id: AllocationId,
        correlation: CorrelationId,
    ) -> Result<Option<Outgoing>, CommandError> {
        let mut tx = self.store().begin().await?;
        let mut allocation = tx.allocation(id).await?;
        if allocation.state == AllocationState::Requested {
            let detail = absence_detail(&tx.node(allocation.node).await?);
            allocation = change(&mut tx, allocation, AllocationEvent::Provision, detail, correlation).await?;
        }
        let access = ownership::for_allocation(&mut tx, &allocation).await?;
        if let Err(refused) = access.check_takes_tasks() {
            change(&mut tx, allocation, AllocationEvent::Failed, Some(refused.to_string()), correlation).await?;
            tx.commit().await?;
            return Ok(None);
        }
        let task = self.record_inspection(&mut tx, access, Origin::standalone(correlation), None).await?;
        tx.commit().await?;
        Ok(Some(task))
    }
}

/// Applies an event to an allocation, and writes the event record.
pub(crate) async fn change(
    tx: &mut Tx,
    mut allocation: AllocationRecord,
    event: AllocationEvent,
    detail: Option<String>,
    correlation: CorrelationId,
) -> Result<AllocationRecord, CommandError> {
    allocation.state = allocation.state.on(event)?;
    allocation.detail = detail;
    let allocation = tx.update_allocation(&allocation).await?;
    let node = tx.node(allocation.node).await?;
    let waiting = waiting::of_allocation(&allocation, &node);
    let data = json!({
        "node": node.name, "state": allocation.state, "detail": allocation.detail, "waiting": waiting,
    });
    let events = EventScope { project: allocation.project, correlation };
    events.event(tx, EventKind::AllocationChanged, "allocation", allocation.id.to_string(), data).await?;
    Ok(allocation)
}

/// Describes why the inspection of the node cannot begin yet; `None` if the node is connected.
fn absence_detail(node: &NodeRecord) -> Option<String> {
    let is_absent = node.connectivity != Connectivity::Connected;
    is_absent.then(|| {
        let NodeRecord { name, connectivity, connectivity_since: since, .. } = node;
        format!("waits for {name}, which is {connectivity} since {since}; the node is inspected when it connects")
    })
}

/// Describes what would now block a deployment onto the node; `None` if nothing would.
fn blocking_detail(node: &NodeRecord) -> Option<String> {
    findings::describe_blocking(node.preflight.as_ref())
        .map(|what| format!("{what}; see gpuaas node show {}", node.name))
}
