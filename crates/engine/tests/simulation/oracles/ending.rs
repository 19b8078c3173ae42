//! Checks the end of a deployment: the workload runs, nothing is open, and no lease is held.

use gpuaas_model::{
    AllocationState, Connectivity, Endpoint, Health, Lifecycle, MemberState, OperationState, Recovery, StepState,
};
use gpuaas_store::{Page, StoreError};

use super::{Oracle, Rows};
use crate::simulation::{Scenario, Simulation};

pub(super) fn check(rows: &Rows, violations: &mut Vec<String>) {
    let mut require = |holds: bool, otherwise: String| {
        if !holds {
            violations.push(otherwise);
        }
    };
    let workload = &rows.workload;
    require(workload.lifecycle == Lifecycle::Running, format!("the workload is {}", workload.lifecycle));
    require(workload.health == Health::Healthy, format!("its health is {}", workload.health));
    require(workload.recovery == Recovery::None, format!("its recovery is {}", workload.recovery));
    require(workload.observed_generation == workload.generation, "the observed generation is not current".to_owned());
    let server = rows.members.first().map(|member| member.id);
    let is_its = workload.endpoints.len() == 1 && workload.endpoints[0].member == server;
    require(
        is_its && workload.endpoint(Endpoint::API).is_some(),
        format!("its endpoints are {:?}", workload.endpoints),
    );
    require(workload.progress.completed == workload.progress.total, "its progress is incomplete".to_owned());
    require(rows.members.len() == rows.nodes.len(), "a member is missing".to_owned());
    for member in &rows.members {
        let ready = matches!(member.state, MemberState::Ready { .. }) && member.health == Health::Healthy;
        require(ready, format!("{} is {} and {}", member.name(), member.state.name(), member.health));
    }
    for node in &rows.nodes {
        require(node.connectivity == Connectivity::Connected, format!("{} is {}", node.name, node.connectivity));
    }
    for allocation in &rows.allocations {
        let settled = matches!(allocation.state, AllocationState::Active | AllocationState::Failed);
        require(settled, format!("an allocation is {}", allocation.state));
    }
    for (position, (operation, steps)) in rows.operations.iter().enumerate() {
        let last = position + 1 == rows.operations.len();
        let ended = operation.state.is_final() && operation.ended_at.is_some();
        require(ended, format!("operation {} is {}", operation.id, operation.state));
        let well = operation.state == OperationState::Succeeded;
        require(well == last, format!("operation {} ended {}", operation.id, operation.state));
        // An operation that did not succeed has a fault code.
        let named = well || operation.fault.as_ref().is_some_and(|fault| !fault.code.is_empty());
        require(named, format!("operation {} needs attention and names no fault", operation.id));
        for step in steps {
            let is_complete = if well { step.state == StepState::Succeeded } else { step.state.is_final() };
            require(
                is_complete,
                format!("step {} of a {} operation is {}", step.spec.key, operation.state, step.state),
            );
        }
    }
}

/// Checks that members are in the order of their placement, each on its node.
pub(super) fn check_placement(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    let placed: Vec<_> = rows.members.iter().map(|member| (member.name(), member.place.node())).collect();
    let names = std::iter::once("server-1".to_owned()).chain((1..).map(|ordinal| format!("agent-{ordinal}")));
    let wanted: Vec<_> = names.zip(simulation.nodes().iter().map(|node| Some(node.id))).collect();
    if placed != wanted {
        violations.push(format!("members are {placed:?}, but were placed as {wanted:?}"));
    }
}

/// Checks that no lease of an operation, allocation or node is held any more, that the last task of each node was signed under the node's
/// present fence, and that each node has one session, at the replica that it is connected to.
pub(super) async fn check_leases(simulation: &Simulation, rows: &Rows) -> Result<(), StoreError> {
    let mut reader = simulation.store.read().await?;
    let operations = rows.operations.iter().map(|(operation, _)| format!("operation/{}", operation.id));
    let allocations = rows.allocations.iter().map(|allocation| format!("allocation/{}", allocation.id));
    let nodes = rows.nodes.iter().map(|node| format!("node/{}", node.id));
    for name in operations.chain(allocations).chain(nodes) {
        let held = reader.lease(&name).await?.filter(|lease| lease.expires_at > simulation.scheduler.now());
        if let Some(lease) = held {
            simulation.report_violation(Oracle::Leases, format!("{name} is still held by {}", lease.holder));
        }
    }
    for node in &rows.nodes {
        let signed = rows.tasks.iter().filter(|task| task.node == node.id).map(|task| task.fence).max();
        let present = reader.lease(&format!("node/{}", node.id)).await?.map(|lease| lease.fence);
        if signed != present && rows.tasks.len() < Page::LIMIT_MAX as usize {
            let what = format!("{}: the last task is signed under {signed:?}, and the fence is {present:?}", node.name);
            simulation.report_violation(Oracle::Fences, what);
        }
    }
    let sessions = reader.sessions().await?;
    for session in &sessions {
        let node = simulation.node(session.node);
        let holder = node.link().and_then(|link| simulation.plane_of(link.plane)).map(|plane| plane.engine.replica());
        if holder != Some(session.replica) {
            let what = format!("{} has a session at {}, and is held by {holder:?}", node.name, session.replica);
            simulation.report_violation(Oracle::Sessions, what);
        }
    }
    // The nodes of released allocations have none.
    if simulation.scenario != Scenario::WholeLife && sessions.len() != simulation.nodes().len() {
        let what = format!("{} nodes have {} sessions", simulation.nodes().len(), sessions.len());
        simulation.report_violation(Oracle::Sessions, what);
    }
    Ok(())
}
