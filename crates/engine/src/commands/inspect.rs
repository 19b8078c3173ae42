//! Inspects nodes and stores the result with them: once when a node is new, and on request.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AuditAction, Code, CorrelationId, MemberState, NodeId, NodeState, Permission};
use gpuaas_planner::Occupancy;
use gpuaas_store::{Found, NodeRecord, Reader, StoreError, TaskRecord, Tx};
use gpuaas_wire::task::{Inspect, Inspection, Measure, Preflight, TaskSpec};
use serde_json::json;

use super::{audit, platform_task};
use crate::{
    caller::Caller,
    dispatch::{Origin, Outgoing, StepStartError, TaskEnd},
    engine::Engine,
    error::{CommandError, EngineError},
    findings,
    ownership::{self, NodeAccess},
};

/// Time limit of an inspection: a GPU driver that nothing keeps loaded takes seconds.
pub(super) const INSPECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Inspects a node now and returns its updated row. Measures the write latency of its disk.
pub async fn inspect(engine: &Arc<Engine>, caller: &Caller, id: NodeId) -> Result<NodeRecord, CommandError> {
    caller.require(Permission::NodesWrite)?;
    let mut tx = engine.store().begin().await?;
    let node = tx.node(id).await?;
    platform_task::check_reachable(&node)?;
    let access = ownership::for_operator(&mut tx, caller, id).await?;
    let origin = Origin::standalone(caller.correlation);
    let task = engine.record_inspection(&mut tx, access, origin, Some(Measure::AnyDisk)).await?;
    let target = format!("node/{}", node.name);
    audit(&mut tx, caller, AuditAction::NodeInspect, target, None, json!({ "task": task.task.id })).await?;
    tx.commit().await?;
    let within = engine.clone();
    platform_task::run_in_background(engine, "inspection", async move { within.end_inspection(&node, task).await })
        .await
}

/// Inspects a node that was never inspected, or on which a member was given up, in the background. A node that does not answer is tried again
/// at its next connection.
pub fn inspect_new(engine: &Arc<Engine>, id: NodeId) {
    let within = engine.clone();
    let work = async move {
        if let Err(error) = within.inspect_if_new(id).await {
            tracing::warn!(node = %id, %error, "a new node could not be inspected yet");
        }
    };
    engine.ports().runtime.spawn("inspection of a new node", Box::pin(work));
}

/// The end of an inspection.
pub(super) enum Inspected {
    /// The result is stored; the node's present row.
    Stored(Box<NodeRecord>),
    /// There is no result, with the reason.
    Unusable(String),
}

impl Engine {
    async fn inspect_if_new(&self, id: NodeId) -> Result<(), CommandError> {
        if !is_new(&self.store().read().await?.node(id).await?) {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        let node = tx.node(id).await?;
        if !is_new(&node) {
            return Ok(());
        }
        let correlation = CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy);
        let access = ownership::for_platform(&mut tx, id).await?;
        let origin = Origin::standalone(correlation);
        let task = self.record_inspection(&mut tx, access, origin, Some(Measure::OwnDisk)).await?;
        tx.commit().await?;
        self.end_inspection(&node, task).await.map(|_| ())
    }

    /// Inspects a node now, without measurements.
    pub(super) async fn inspect_quickly(
        &self,
        id: NodeId,
        correlation: CorrelationId,
    ) -> Result<NodeRecord, CommandError> {
        let mut tx = self.store().begin().await?;
        let node = tx.node(id).await?;
        let access = ownership::for_platform(&mut tx, id).await?;
        let task = self.record_inspection(&mut tx, access, Origin::standalone(correlation), None).await?;
        tx.commit().await?;
        self.end_inspection(&node, task).await
    }

    /// Records the task of an inspection. It is sent after the caller's commit.
    pub(super) async fn record_inspection(
        &self,
        tx: &mut Tx,
        access: NodeAccess,
        origin: Origin,
        measure: Option<Measure>,
    ) -> Result<Outgoing, StepStartError> {
        let inspect = Inspect { measure, preflight: self.preflight_for(tx, access.node().node).await? };
        let expires_at = self.ports().clock.now().plus(INSPECT_TIMEOUT);
        let what = (Inspect::TYPE, Inspect::OLDEST);
        self.record_task(tx, access, origin, what, json!(inspect), expires_at).await
    }

    /// The preflight for a node: a smaller one if a member lives there, and a larger one if a member was given up there.
    async fn preflight_for(&self, reader: &mut Reader, node: NodeId) -> Result<Option<Preflight>, StoreError> {
        let members = reader.members_on(node).await?;
        let occupancy = if members.iter().any(|member| member.touched && member.state != MemberState::Removed) {
            Occupancy::Occupied
        } else if findings::removal_unproven(&reader.node(node).await?).is_some() {
            Occupancy::GivenUp
        } else {
            Occupancy::Free
        };
        Ok(self.catalog().preflight(occupancy))
    }

    /// Follows an inspection and stores its result.
    async fn end_inspection(&self, node: &NodeRecord, sent: Outgoing) -> Result<NodeRecord, CommandError> {
        let task = sent.task.clone();
        let end = platform_task::end(self, sent).await;
        let mut tx = self.store().begin().await?;
        self.record_task_end(&mut tx, task.clone(), &end).await?;
        let inspected = self.store_inspection(&mut tx, &task, &end).await?;
        tx.commit().await?;
        platform_task::result(node, end)?;
        match inspected {
            Inspected::Stored(node) => Ok(*node),
            Inspected::Unusable(why) => {
                Err(CommandError::new(Code::TaskResultInvalid, why).then("check the version of the node's agent"))
            }
        }
    }

    /// Stores the result of an inspection in the node's row, with its event. Keeps earlier measurements and findings that
    /// were not repeated.
    pub(super) async fn store_inspection(
        &self,
        tx: &mut Tx,
        task: &TaskRecord,
        end: &TaskEnd,
    ) -> Result<Inspected, EngineError> {
        let mut node = tx.node(task.node).await?;
        let mut found = match inspection(end) {
            Ok(_) if node.epoch != task.epoch => {
                return Ok(Inspected::Unusable("the node was reset during the inspection".to_owned()));
            }
            Ok(found) => found,
            Err(why) => return Ok(Inspected::Unusable(why)),
        };
        let measured = node.machine.take().and_then(|machine| machine.data_disk).and_then(|disk| disk.writes);
        if let Some(disk) = found.machine.as_mut().and_then(|machine| machine.data_disk.as_mut()) {
            disk.writes = disk.writes.or(measured);
        }
        let now = self.ports().clock.now();
        let (before, by) = (node.preflight.take(), Found { at: now, operation: None });
        node.facts = Some(found.facts);
        node.machine = found.machine;
        // One that began while a member lived there looked for nothing that the member left.
        let report = found.preflight.filter(|_| !findings::is_marked_since(before.as_ref(), task.created_at));
        node.preflight = match report {
            Some(report) => Some(findings::merge(before, report, &by)),
            None => findings::without_preflight(before),
        };
        node.inspected_at = Some(now);
        let node = tx.update_node(&node).await?;
        findings::announce(tx, &node, task.correlation).await?;
        Ok(Inspected::Stored(Box::new(node)))
    }
}

fn inspection(end: &TaskEnd) -> Result<Inspection, String> {
    match end {
        TaskEnd::Succeeded(result) => serde_json::from_value(result.clone()).map_err(|error| error.to_string()),
        TaskEnd::Failed(failure) => Err(failure.message.clone()),
        TaskEnd::Interrupted => Err("the node's agent died during the inspection".to_owned()),
    }
}

/// Returns `true` if a node needs an automatic inspection: it had none, its agent can now report more than is stored, or nothing shows yet
/// what a member that was given up left there.
fn is_new(node: &NodeRecord) -> bool {
    let knows = |schema: u32| {
        node.support.iter().any(|known| known.task == Inspect::TYPE.as_str() && known.schemas.contains(&schema))
    };
    let can_report_more = node.machine.is_none() && knows(Inspect::SCHEMA_WITH_MACHINE);
    node.state == NodeState::Active
        && node.agent_problem.is_none()
        && knows(Inspect::OLDEST)
        && (node.inspected_at.is_none() || can_report_more || findings::removal_unproven(node).is_some())
}
