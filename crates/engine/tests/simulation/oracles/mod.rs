//! Checks that must hold in every seed, whatever faults were injected: at single events and at the end.

pub(crate) mod backups;
mod drift;
mod effects;
mod ending;
mod explained;
mod history;
mod judgments;
mod life;
mod oracle;
mod records;
mod replay;
mod tenants;

pub(crate) use explained::check as check_explained;
pub(crate) use history::check as check_history;
pub(crate) use judgments::check_member;
pub(crate) use oracle::{Oracle, Violation};
pub(crate) use tenants::{Effect, check as check_effect};

use std::sync::Arc;

use gpuaas_model::{ReplicaId, StreamName};
use gpuaas_store::{
    AllocationFilter, AllocationRecord, AuditFilter, AuditRecord, EventRecord, MemberRecord, NodeFilter, NodeRecord,
    OperationFilter, OperationRecord, Page, StepRecord, StoreError, TaskFilter, TaskRecord, WorkloadFilter,
    WorkloadRecord,
};
use uuid::Uuid;

use crate::{
    node::Node,
    people::Deployed,
    plane::Plane,
    simulation::{Scenario, Simulation},
};

/// All rows that the oracles read.
struct Rows {
    workload: WorkloadRecord,
    members: Vec<MemberRecord>,
    nodes: Vec<NodeRecord>,
    allocations: Vec<AllocationRecord>,
    operations: Vec<(OperationRecord, Vec<StepRecord>)>,
    tasks: Vec<TaskRecord>,
    streams: Vec<Vec<EventRecord>>,
    audits: Vec<AuditRecord>,
}

/// Judges a finished deployment, and returns its events, audit records and tasks as lines for the trace.
pub(crate) async fn check(
    simulation: &Arc<Simulation>,
    scenario: Scenario,
    deployed: &Deployed,
) -> Result<Vec<String>, StoreError> {
    let rows = Rows::load(simulation, deployed).await?;
    match scenario {
        Scenario::OneDeployment | Scenario::TwoTenants => {
            judge(simulation, Oracle::Ending, |violations| {
                ending::check(&rows, violations);
                ending::check_placement(simulation, &rows, violations);
            });
            judge(simulation, Oracle::Effects, |violations| effects::check_times(simulation, &rows, violations));
        }
        Scenario::WholeLife => life::check(simulation, &rows).await?,
    }
    ending::check_leases(simulation, &rows).await?;
    judge(simulation, Oracle::Events, |violations| records::check(&rows, violations));
    judge(simulation, Oracle::Audit, |violations| records::check_audit(&rows, violations));
    judge(simulation, Oracle::Order, |violations| records::check_step_order(&rows, violations));
    judge(simulation, Oracle::Effects, |violations| {
        records::check_attempts(&rows, violations);
        effects::check(simulation, &rows, violations);
    });
    for (oracle, what) in replay::check(&rows) {
        simulation.report_violation(oracle, what);
    }
    Ok(rows.trace_lines())
}

/// Reports what a check finds.
fn judge(simulation: &Simulation, oracle: Oracle, check: impl FnOnce(&mut Vec<String>)) {
    let mut violations = Vec::new();
    check(&mut violations);
    violations.into_iter().for_each(|what| simulation.report_violation(oracle, what));
}

/// Checks that a control plane that has just settled an attempt holds the lease of the newest operation.
pub(crate) async fn check_lease_holder(simulation: Arc<Simulation>, plane: Plane) {
    let held = async {
        let mut reader = simulation.store.read().await?;
        let mut newest = None;
        for workload in reader.workloads(&WorkloadFilter::default()).await? {
            newest = newest.max(reader.newest_operation(workload.id).await?.map(|of| (of.id, of.state)));
        }
        match newest {
            // Its driver releases the lease at its end, and another replica may take it before it sees that nothing is left to do.
            Some((_, state)) if state.is_final() => Ok(None),
            Some((operation, _)) => Ok(Some(reader.lease(&format!("operation/{operation}")).await?)),
            None => Ok::<_, StoreError>(None),
        }
    };
    match held.await {
        Ok(None) => {}
        Ok(Some(Some(lease))) if lease.holder == plane.engine.replica() => {}
        Ok(lease) => {
            simulation.report_violation(Oracle::Leases, format!("{} settled an attempt under {lease:?}", plane.name))
        }
        Err(error) => simulation.report_violation(Oracle::Leases, format!("the lease cannot be read: {error}")),
    }
}

/// Checks that a connection whose end was recorded is not in the node's session row.
pub(crate) async fn check_disconnected(simulation: &Simulation, node: &Node, connection: Uuid) {
    let row = async { simulation.store.read().await?.session(node.id).await };
    match row.await {
        Ok(session) if session.as_ref().is_none_or(|session| session.connection != connection) => {}
        Ok(_) => simulation.report_violation(
            Oracle::Sessions,
            format!("a connection of {} ended but is still in its session row", node.name),
        ),
        Err(error) => simulation
            .report_violation(Oracle::Sessions, format!("the session of {} cannot be read: {error}", node.name)),
    }
}

/// Checks that an evicted replica has no sessions.
pub(crate) async fn check_eviction(simulation: &Simulation, evicted: ReplicaId) -> Result<(), StoreError> {
    let stand = simulation.store.read().await?.sessions_of(evicted).await?.len();
    if stand > 0 {
        simulation
            .report_violation(Oracle::Sessions, format!("{stand} sessions remain at {evicted}, which was evicted"));
    }
    Ok(())
}

impl Rows {
    async fn load(simulation: &Simulation, deployed: &Deployed) -> Result<Self, StoreError> {
        let mut reader = simulation.store.read().await?;
        let mut operations = Vec::new();
        for operation in reader.operations(&OperationFilter::default()).await? {
            let steps = reader.steps_of(operation.id).await?;
            operations.push((operation, steps));
        }
        let mut streams = Vec::new();
        for stream in [StreamName::Platform, StreamName::Project(deployed.project)] {
            let mut events: Vec<EventRecord> = Vec::new();
            loop {
                let after = events.last().map_or(0, |event| event.sequence);
                let page = reader.events(stream, after, Page::LIMIT_MAX).await?;
                if page.is_empty() {
                    break;
                }
                events.extend(page);
            }
            streams.push(events);
        }
        let mut audits: Vec<AuditRecord> = Vec::new();
        loop {
            let after = audits.last().map_or(0, |audit| audit.sequence);
            let page = reader.audits(&AuditFilter { after, ..AuditFilter::default() }).await?;
            if page.is_empty() {
                break;
            }
            audits.extend(page);
        }
        Ok(Self {
            workload: reader.workload(deployed.workload).await?,
            members: reader.members_of(deployed.workload).await?,
            nodes: reader.nodes(&NodeFilter::default()).await?,
            allocations: reader.allocations(&AllocationFilter::default()).await?,
            tasks: reader.tasks(&TaskFilter::default()).await?,
            operations,
            streams,
            audits,
        })
    }

    /// Formats all events, then all audit records, then all tasks, one per line.
    fn trace_lines(&self) -> Vec<String> {
        let events = self.streams.iter().flatten().map(|event| {
            let EventRecord { stream, sequence, at, kind, subject_id, correlation, data, .. } = event;
            format!("event {stream} {sequence} {at} {kind} {subject_id} {correlation:?} {data}")
        });
        let audits = self.audits.iter().map(|audit| {
            let AuditRecord { sequence, at, actor, action, target, metadata, .. } = audit;
            format!("audit {sequence} {at} {actor} {action} {target} {metadata}")
        });
        let tasks = self.tasks.iter().map(|task| {
            let TaskRecord { id, task_type, attempt, fence, state, created_at, ended_at, .. } = task;
            format!("task {id} {task_type} attempt {attempt} fence {fence} {state} {created_at} {ended_at:?}")
        });
        events.chain(audits).chain(tasks).collect()
    }
}
