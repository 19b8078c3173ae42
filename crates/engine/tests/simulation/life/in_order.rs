//! Every operation of a workload, one after the other and without faults, while a person cancels one of them in one of its steps. What was
//! cancelled is resumed, and must succeed then.

use std::{sync::Arc, time::Duration};

use gpuaas_crash_points::{Point, StepKind};
use gpuaas_model::{OperationState, ProjectId, WorkloadId};

use super::{
    check_waits,
    person::Person,
    script::{Action, Choice, RequestKind, Script, ScriptEntry},
};
use crate::{
    faults::{Faults, Strike},
    people::People,
    simulation::Simulation,
};

/// The node of the agent that is damaged: the one that replaced another.
const DAMAGED: usize = 3;
/// The time in which the control plane learns that a unit has ended.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);
/// Calls to the cluster check its state at multiples of this interval.
const CHECK_INTERVAL_MS: i64 = 500;

/// Every operation that a workload can have, on the nodes of a whole life: `RequestKind`, number of the member and of the allocation.
const OPERATIONS: [(RequestKind, u64, u64); 10] = [
    (RequestKind::Add, 0, 2),
    (RequestKind::Drain, 2, 0),
    (RequestKind::Uncordon, 2, 0),
    (RequestKind::Remove, 2, 0),
    (RequestKind::Replace, 1, 3),
    (RequestKind::Stop, 0, 0),
    (RequestKind::Start, 0, 0),
    (RequestKind::Reconcile, 0, 0),
    (RequestKind::Repair, 0, 0),
    (RequestKind::Decommission, 0, 0),
];

/// The number of requests of the script.
pub(crate) const REQUESTS: usize = OPERATIONS.len();

/// Returns a script of all operations. With `cancelled`, a person cancels the open operation when the step with this number among those of
/// its kind begins, counted over the whole life.
pub(crate) fn script(nodes: usize, cancelled: Option<(StepKind, u32)>) -> Script {
    let mut faults = Faults::none(nodes);
    faults.check_interval_ms = CHECK_INTERVAL_MS;
    faults.strikes.extend(cancelled.map(|(kind, number)| (Point::StepBegun(kind), number, Strike::Cancel)));
    let mut entries = Vec::new();
    for (kind, member, allocation) in OPERATIONS {
        if kind == RequestKind::Repair {
            entries
                .push(ScriptEntry { at: Duration::ZERO, action: Action::EndUnit { node: DAMAGED, is_damaged: true } });
        }
        let choice = Choice {
            member,
            allocation,
            is_forced: true,
            timeout_seconds: 300,
            // Of the whole runtime.
            scope: 2,
            planned_before: None,
        };
        entries.push(ScriptEntry { at: Duration::ZERO, action: Action::Request { person: 0, kind, choice } });
    }
    Script { entries, is_in_order: true, ..Script::of_faults(faults) }
}

/// Does what the script says. Returns why an operation did not succeed.
pub(super) async fn work(
    simulation: &Arc<Simulation>,
    people: &People,
    (project, workload): (ProjectId, WorkloadId),
    script: &Script,
) -> Result<(), String> {
    let ada = Person::of(simulation, 0, project, workload);
    let acts = async {
        finish(simulation, people, &ada, workload).await?;
        for entry in &script.entries {
            match &entry.action {
                Action::Request { kind, choice, .. } => {
                    ada.ask(*kind, *choice).await;
                    finish(simulation, people, &ada, workload).await?;
                }
                Action::EndUnit { node, is_damaged } => {
                    simulation.nodes()[*node].end_unit(simulation, *is_damaged).await;
                    simulation.scheduler.sleep(NOTICED_WITHIN).await;
                }
                Action::Report { .. }
                | Action::DeleteKubeNode { .. }
                | Action::BlockEvictions { .. }
                | Action::EditConfig { .. }
                | Action::DisableUnit { .. }
                | Action::NotReady { .. }
                | Action::RemoveLabels { .. }
                | Action::ReplaceMachine { .. } => {}
            }
        }
        Ok::<(), String>(())
    };
    let ended = tokio::select! {
        biased;
        ended = acts => ended,
        () = check_waits(simulation, workload) => Ok(()),
    };
    simulation.stop_faults();
    ended
}

/// Waits for the end of the newest operation, and resumes it if it was cancelled. It must succeed, as nothing fails.
async fn finish(simulation: &Simulation, people: &People, ada: &Person, workload: WorkloadId) -> Result<(), String> {
    let mut ended = people.end_of_newest(workload).await?;
    if ended.state == OperationState::Cancelled {
        simulation.log(&format!("{} was cancelled", ended.kind));
        simulation.count("cancelled operations resumed");
        ada.resume().await;
        ended = people.end_of_newest(workload).await?;
    }
    let fault = ended.fault.as_ref().map_or("no fault", |fault| fault.summary.as_str());
    match ended.state {
        OperationState::Succeeded => Ok(()),
        state => Err(format!("{} ended {state}, although nothing failed: {fault}", ended.kind)),
    }
}
