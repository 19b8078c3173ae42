//! A person who does what the platform advises until the workload runs or is gone.

use std::time::Duration;

use gpuaas_engine::{Precondition, commands};
use gpuaas_model::{Lifecycle, OperationKind, OperationState, Recovery, WorkloadId};
use gpuaas_planner::OperationRequest;
use gpuaas_store::{OperationRecord, WorkloadRecord};
use serde_json::json;

use crate::{people::People, simulation::Simulation};

/// The person gives up after this many operations.
const OPERATIONS_MAX: usize = 10;

/// The person waits this long for the reconciliations that the platform starts by itself: three, with waits of up to two minutes.
const PLATFORM_WAIT: Duration = Duration::from_secs(600);

/// What the person does next.
enum Step {
    Resume,
    Start(OperationKind, serde_json::Value),
}

/// Brings the workload to rest, or records why that was not possible.
pub(crate) async fn settle(simulation: &Simulation, people: &People, workload: WorkloadId) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..OPERATIONS_MAX {
        let (newest, row) = platform_done(simulation, people, workload).await?;
        let fault = row.fault.as_ref().map_or("no fault", |fault| fault.code.as_str());
        last = format!("{} {} {} {fault}", row.lifecycle, row.health, row.recovery);
        simulation.log(&format!("{} ended {}; the workload is {last}", newest.kind, newest.state));
        let members = people.read(async |reader| reader.members_of(workload).await).await?;
        let of_member = members.iter().find_map(|member| member.state.fault().or(member.fault.as_ref()));
        let shown = row.fault.as_ref().or(of_member).and_then(|fault| fault.next.command.as_deref());
        let Some(step) = advised(&row, newest.state, shown) else { return Ok(()) };
        let refused = match step {
            Step::Resume => people.resume(workload).await,
            Step::Start(kind, parameters) => people.start(workload, kind, parameters).await,
        };
        if let Err(refused) = refused {
            simulation.log(&format!("refused: {refused}"));
            last = format!("{last}; refused: {refused}");
            // What the newest operation left is repeated; what deviates without one is corrected.
            let other = if newest.state == OperationState::Succeeded {
                people.start(workload, OperationKind::Reconcile, json!({})).await
            } else {
                people.resume(workload).await
            };
            if let Err(refused) = other {
                simulation.log(&format!("refused, too: {refused}"));
            }
        }
    }
    people.end_of_newest(workload).await?;
    simulation.set_unsettled(last);
    Ok(())
}

/// Waits until all nodes are connected, no operation is open, and the platform starts none by itself.
async fn platform_done(
    simulation: &Simulation,
    people: &People,
    workload: WorkloadId,
) -> Result<(OperationRecord, WorkloadRecord), String> {
    let deadline = simulation.scheduler.now().plus(PLATFORM_WAIT);
    loop {
        let newest = people.end_of_newest(workload).await?;
        people.all_connected().await?;
        let row = people.read(async |reader| reader.workload(workload).await).await?;
        let is_due = row.lifecycle == Lifecycle::Running && row.drift.due_at.is_some();
        if !is_due || simulation.scheduler.now() >= deadline {
            return Ok((newest, row));
        }
        people.pause().await;
    }
}

/// Returns what the person does; `None` if the workload is at rest. A command that the workload shows is followed.
fn advised(row: &WorkloadRecord, newest: OperationState, shown: Option<&str>) -> Option<Step> {
    let is_at_rest = row.lifecycle == Lifecycle::Decommissioned
        || row.lifecycle == Lifecycle::Running && row.recovery == Recovery::None;
    let verb = shown.and_then(|command| command.split_whitespace().nth(2));
    match verb {
        _ if is_at_rest => None,
        // A member that failed before the stop still advises its repair, which a stopped workload refuses.
        _ if row.lifecycle == Lifecycle::Stopped => of_state(row, newest),
        Some("repair") => Some(Step::Start(OperationKind::Repair, json!({ "scope": "whole_runtime" }))),
        Some("reconcile") => Some(Step::Start(OperationKind::Reconcile, json!({}))),
        Some("resume") if newest != OperationState::Succeeded => Some(Step::Resume),
        Some(_) | None => of_state(row, newest),
    }
}

/// Returns what a person does who knows only the state of the workload.
fn of_state(row: &WorkloadRecord, newest: OperationState) -> Option<Step> {
    let ended_badly = newest != OperationState::Succeeded;
    let repair = || Step::Start(OperationKind::Repair, json!({ "scope": "whole_runtime" }));
    match row.lifecycle {
        Lifecycle::Decommissioned => None,
        Lifecycle::Running => match row.recovery {
            Recovery::None => None,
            Recovery::RepairAvailable => Some(repair()),
            Recovery::Resumable if ended_badly => Some(Step::Resume),
            Recovery::ManualIntervention if ended_badly => Some(Step::Resume),
            Recovery::Resumable
            | Recovery::ManualIntervention
            | Recovery::Retrying
            | Recovery::Reconciling
            | Recovery::Terminal => Some(repair()),
        },
        Lifecycle::Stopped => Some(Step::Start(OperationKind::Start, json!({}))),
        Lifecycle::Stopping | Lifecycle::Starting => match row.recovery {
            Recovery::RepairAvailable if row.lifecycle == Lifecycle::Starting => Some(repair()),
            Recovery::RepairAvailable
            | Recovery::None
            | Recovery::Retrying
            | Recovery::Reconciling
            | Recovery::Resumable
            | Recovery::ManualIntervention
            | Recovery::Terminal => Some(Step::Start(OperationKind::Start, json!({}))),
        },
        Lifecycle::Requested
        | Lifecycle::Deploying
        | Lifecycle::Decommissioning
        | Lifecycle::Failed
        | Lifecycle::Cancelled => Some(Step::Resume),
    }
}

impl People {
    /// Starts an operation and repeats the request until an answer comes.
    async fn start(
        &self,
        workload: WorkloadId,
        kind: OperationKind,
        parameters: serde_json::Value,
    ) -> Result<(), String> {
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let asked = self.ask(move |engine, caller| {
            let request = OperationRequest { kind, parameters: parameters.clone() };
            Box::pin(async move {
                commands::workload::start_operation(&engine, &caller, workload, &Precondition::Any, request).await
            })
        });
        asked.await.map(drop).map_err(|error| error.to_string())
    }

    async fn resume(&self, workload: WorkloadId) -> Result<(), String> {
        let asked = self.ask(move |engine, caller| {
            Box::pin(async move { commands::workload::resume(&engine, &caller, workload, &Precondition::Any).await })
        });
        asked.await.map(drop).map_err(|error| error.to_string())
    }
}
