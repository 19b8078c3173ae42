//! Desired against observed: a workload's rows against its members, their nodes and its cluster. Changes nothing.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{Code, Lifecycle, Name, NextAction, Permission, Timestamp, WorkloadId};
use gpuaas_planner::{
    Difference, NodeSight, Unknown,
    difference::{self, ClusterExpected},
    drift::DriftSource,
};
use gpuaas_store::{OperationRecord, WorkloadRecord};
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;

use crate::{
    caller::Caller,
    effects::CallContext,
    engine::Engine,
    error::CommandError,
    fair_queue::{CallPermit, QueueFull},
    rows::WorkloadRows,
};

/// Longest time of the call to the cluster: a healthy one answers in milliseconds, and a person waits for this.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A comparison of a workload with what was observed.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The workload, as its rows were after the cluster was observed.
    pub workload: WorkloadRecord,
    /// The operation that was under way then.
    pub operation: Option<OperationRecord>,
    /// Time of the comparison.
    pub at: Timestamp,
    /// The differences: those of members and their connections, what was last found on nodes, then those of the cluster.
    pub differences: Vec<Difference>,
    /// What could not be asked.
    pub unknown: Vec<Unknown>,
    /// What no comparison looks at, with the command that does.
    pub not_compared: Vec<String>,
}

/// Compares a workload with its members, their nodes and, if it runs, its cluster.
///
/// A cluster that does not answer leaves a line in [`Comparison::unknown`]; it never counts as agreement. Refuses with `rate_limited` while
/// too many comparisons wait.
pub async fn compare(engine: &Arc<Engine>, caller: &Caller, id: WorkloadId) -> Result<Comparison, CommandError> {
    let rows = WorkloadRows::load(&mut engine.store().read().await?, id).await?;
    caller.require_visible(rows.workload.project, "workload", id)?;
    caller.require(Permission::ProjectRead)?;
    let expected = ClusterExpected::of(rows.workload.lifecycle);
    let observed = match expected {
        ClusterExpected::Yes => Some(observe(engine, &rows).await?),
        ClusterExpected::No | ClusterExpected::NotYet => None,
    };
    // The rows again: the cluster may have taken seconds to answer, and an operation may have ended meanwhile.
    let mut reader = engine.store().read().await?;
    let rows = WorkloadRows::load(&mut reader, id).await?;
    let newest = reader.newest_operation(id).await?;
    drop(reader);
    let operation = newest.filter(|operation| !operation.state.is_final());
    let view = rows.view();
    let open = operation.as_ref().map(|operation| operation.id);
    let (mut differences, mut unknown) = difference::of_members(&view, &sights(&rows), open);
    differences.extend(of_nodes(&rows.workload));
    let app = &engine.catalog().require(&rows.workload.app)?.app;
    match (observed, expected) {
        (Some(observed), _) => match observed.and_then(|observed| app.compare(&view, &observed)) {
            Ok(found) => differences.extend(found),
            Err(failure) => unknown.push(unseen(&rows.workload.name, &failure)),
        },
        (None, ClusterExpected::NotYet) => unknown.push(not_running(&rows.workload)),
        (None, ClusterExpected::Yes | ClusterExpected::No) => {}
    }
    let named = |text: String| text.replace(" NAME", &format!(" {}", rows.workload.name));
    let not_compared = app.not_compared().into_iter().map(named).collect();
    let at = engine.ports().clock.now();
    Ok(Comparison { workload: rows.workload, operation, at, differences, unknown, not_compared })
}

/// Returns what was last found on the nodes of a running workload.
fn of_nodes(workload: &WorkloadRecord) -> impl Iterator<Item = Difference> {
    let is_running = workload.lifecycle == Lifecycle::Running;
    let of_nodes = workload.drift.seen.iter().filter(move |seen| is_running && seen.source != DriftSource::Cluster);
    of_nodes.map(|seen| seen.difference.clone())
}

/// Returns how the cluster of a running workload deviates; `None` if it could not be compared now.
pub(crate) async fn of_cluster(engine: &Arc<Engine>, rows: &WorkloadRows) -> Option<Vec<Difference>> {
    let observed = observe(engine, rows).await.ok()?.ok()?;
    Some(engine.catalog().app(&rows.workload.app)?.app.judge_cluster(&rows.view(), Ok(&observed)).ok()?.drift)
}

/// Observes the cluster. Its failures are results; only a full queue refuses the command.
async fn observe(engine: &Arc<Engine>, rows: &WorkloadRows) -> Result<Result<Value, TaskFailure>, CommandError> {
    let effects = engine.catalog().require(&rows.workload.app)?.effects.clone();
    let _permit = permit(engine, &rows.workload).await?;
    let deadline = engine.ports().clock.now().plus(CALL_TIMEOUT);
    let over = engine.ports().runtime.sleep_until(deadline);
    let context = CallContext::of(engine, rows.view(), deadline);
    Ok(tokio::select! {
        biased;
        observed = effects.observe(context) => observed,
        () = over => {
            let detail = format!("it did not answer within {} s", CALL_TIMEOUT.as_secs());
            Err(TaskFailure::new(Code::ClusterUnreachable, detail))
        }
    })
}

async fn permit(engine: &Engine, workload: &WorkloadRecord) -> Result<CallPermit, CommandError> {
    let refused = || {
        let detail = format!("too many comparisons of {} with its cluster are in progress", workload.name);
        CommandError::new(Code::RateLimited, detail).then(format!("try again after {} s", PERMIT_TIMEOUT.as_secs()))
    };
    let wait = engine.comparisons().enter(workload.project, workload.id).map_err(|QueueFull| refused())?;
    let over = engine.ports().runtime.sleep_until(engine.ports().clock.now().plus(PERMIT_TIMEOUT));
    tokio::select! {
        biased;
        permit = wait => permit.map_err(|QueueFull| refused()),
        () = over => Err(refused()),
    }
}

/// Returns the connections to the members' nodes. External machines have none.
fn sights(rows: &WorkloadRows) -> Vec<NodeSight> {
    let sight = |member: &gpuaas_store::MemberRecord| {
        let node = rows.nodes.get(&member.place.node()?)?;
        Some(NodeSight { member: member.id, connectivity: node.connectivity, since: node.connectivity_since })
    };
    rows.members.iter().filter_map(sight).collect()
}

fn unseen(workload: &Name, failure: &TaskFailure) -> Unknown {
    Unknown {
        member: None,
        what: "what only its cluster shows".to_owned(),
        why: format!("{} ({})", failure.message, failure.code),
        action: NextAction::compare_again("when its cluster answers", workload),
    }
}

fn not_running(workload: &WorkloadRecord) -> Unknown {
    Unknown {
        member: None,
        what: "what only its cluster shows".to_owned(),
        why: format!("{} is {}, so its cluster was not asked", workload.name, workload.lifecycle),
        action: NextAction::compare_again("when it runs", &workload.name),
    }
}
