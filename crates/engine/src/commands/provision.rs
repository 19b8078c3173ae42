//! Brings a requested allocation to `active`: the node inspects itself, then the allocation may be used. What its preflight finds is kept with
//! the node; a deployment looks for itself, and only what blocks there stops it.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AllocationEvent, AllocationId, AllocationState, Code, Coded, CorrelationId, EventKind};
use gpuaas_store::{AllocationRecord, NodeRecord, StoreError, TaskRecord, Tx};
use gpuaas_wire::task::Severity;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{dispatch::Purpose, driver::STORE_RETRY, engine::Engine, error::CommandError, record::Story};

/// Longer than an inspection with its grace, so that it need not be renewed.
const PROVISION_LEASE_TTL: Duration = Duration::from_secs(90);

impl Engine {
    /// Runs the inspection of a requested allocation in the background. A control plane that dies in the middle does it again at its
    /// next start ([`Engine::provision_open`]).
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

    /// Goes on with every allocation that was on its way when this process started, or when another that did it died.
    pub async fn provision_open(self: &Arc<Self>) -> Result<(), StoreError> {
        let filter = gpuaas_store::AllocationFilter::default();
        let open = self.store().read().await?.allocations(&filter).await?;
        for allocation in open {
            if matches!(allocation.state, AllocationState::Requested | AllocationState::Provisioning) {
                let correlation = CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy);
                self.provision(allocation.id, correlation);
            }
        }
        Ok(())
    }

    async fn provision_now(&self, id: AllocationId, correlation: CorrelationId) -> Result<(), CommandError> {
        let lease = format!("allocation/{id}");
        if self.store().acquire_lease(&lease, self.replica(), PROVISION_LEASE_TTL).await?.is_none() {
            // Another replica inspects it, and outlives this lease or is buried with it.
            return Ok(());
        }
        let provisioned = self.inspect(id, correlation).await;
        self.store().release_lease(&lease, self.replica()).await?;
        provisioned
    }

    async fn inspect(&self, id: AllocationId, correlation: CorrelationId) -> Result<(), CommandError> {
        let task = self.begin_inspection(id, correlation).await?;
        let progress: crate::effects::ProgressSink = Arc::new(|_| {});
        let end = self.follow_task(&task, &progress, &CancellationToken::new()).await;
        let mut tx = self.store().begin().await?;
        self.record_task_end(&mut tx, task.clone(), &end).await?;
        let allocation = tx.allocation(id).await?;
        if allocation.state == AllocationState::Provisioning {
            let (event, detail) = match self.keep_inspection(&mut tx, &task, &end).await? {
                Ok(node) => (AllocationEvent::Passed, in_the_way(&node)),
                Err(why) => (AllocationEvent::Failed, Some(why)),
            };
            change(&mut tx, allocation, event, detail, correlation).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn begin_inspection(&self, id: AllocationId, correlation: CorrelationId) -> Result<TaskRecord, CommandError> {
        let mut tx = self.store().begin().await?;
        let mut allocation = tx.allocation(id).await?;
        if allocation.state == AllocationState::Requested {
            allocation = change(&mut tx, allocation, AllocationEvent::Provision, None, correlation).await?;
        }
        let node = tx.node(allocation.node).await?;
        let purpose = Purpose {
            project: Some(allocation.project),
            workload: None,
            operation: None,
            step: None,
            attempt: 1,
            correlation,
        };
        let task = self.record_inspection(&mut tx, &node, purpose, None).await?;
        tx.commit().await?;
        Ok(task)
    }
}

/// Moves an allocation on, with its event.
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
    let data = json!({ "node": allocation.node, "state": allocation.state, "detail": allocation.detail });
    let story = Story { project: allocation.project, correlation };
    story.event(tx, EventKind::AllocationChanged, "allocation", allocation.id.to_string(), data).await?;
    Ok(allocation)
}

/// What a deployment onto the node would be stopped by as it is now; none where nothing would.
fn in_the_way(node: &NodeRecord) -> Option<String> {
    let findings = node.preflight.iter().flat_map(|preflight| &preflight.findings);
    let checks: Vec<&str> = findings
        .filter(|finding| finding.severity == Severity::Blocking)
        .map(|finding| finding.check.as_str())
        .collect();
    let (count, node) = (checks.len(), &node.name);
    (count > 0)
        .then(|| format!("{count} in the way of a deployment ({}); see gpuaas node show {node}", checks.join(", ")))
}
