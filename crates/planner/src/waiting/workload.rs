//! Explains workloads and their controllers.

use gpuaas_model::{Fault, Health, Lifecycle, NextAction, OperationState, Recovery, Timestamp, Waiting, WaitingFrom};

use super::{
    decision::{decision, of_fault},
    step::{StepRow, current_step},
};

/// The part of a workload's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadRow<'a> {
    /// Name or id of the workload.
    pub name: &'a str,
    /// Position in the lifecycle.
    pub lifecycle: Lifecycle,
    /// Health of the workload.
    pub health: Health,
    /// Possible recovery.
    pub recovery: Recovery,
    /// Its fault, otherwise that of its first member that is degraded or failed.
    pub fault: Option<&'a Fault>,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// Its open operation.
    pub open: Option<Open<'a>>,
}

/// The open operation of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    /// State of the operation.
    pub state: OperationState,
    /// When it was accepted.
    pub since: Timestamp,
    /// Its first step that is running or in backoff.
    pub current: Option<StepRow<'a>>,
}

/// A workload's controller and its last report.
#[derive(Clone, Copy, Debug)]
pub struct ControllerRow<'a> {
    /// Name of the controller's service account.
    pub account: &'a str,
    /// Name of the workload.
    pub workload: &'a str,
    /// Present generation of the workload.
    pub generation: u64,
    /// Generation of the last report; `None` if it has not reported.
    pub reported: Option<u64>,
    /// When the workload last changed, or the account was created, whatever is later.
    pub since: Timestamp,
}

/// Returns true if nothing has to happen to the workload: it is decommissioned, or it runs, is healthy and no operation is open.
pub fn is_settled(of: &WorkloadRow<'_>) -> bool {
    let is_well = of.fault.is_none() && of.recovery == Recovery::None && of.health == Health::Healthy;
    of.open.is_none()
        && match of.lifecycle {
            Lifecycle::Decommissioned => true,
            Lifecycle::Running => is_well,
            Lifecycle::Requested
            | Lifecycle::Deploying
            | Lifecycle::Stopping
            | Lifecycle::Stopped
            | Lifecycle::Starting
            | Lifecycle::Decommissioning
            | Lifecycle::Failed
            | Lifecycle::Cancelled => false,
        }
}

/// Explains a workload that has not [settled](is_settled).
pub fn workload(of: &WorkloadRow<'_>) -> Option<Waiting> {
    if let Some(open) = &of.open {
        return Some(in_operation(of, open));
    }
    let person = |what: &str, next: NextAction| Some(decision(of.fault, what, of.updated_at, next));
    let resume = |why: &str| NextAction::resume(why, of.name);
    match of.lifecycle {
        Lifecycle::Decommissioned => None,
        Lifecycle::Running => running(of),
        Lifecycle::Stopped => person("a start", NextAction::start(of.name)),
        Lifecycle::Requested | Lifecycle::Deploying => {
            person("a decision: no operation deploys it", NextAction::resume_or_remove(of.name))
        }
        Lifecycle::Stopping => person("a decision: its stop is incomplete", resume("some members still run")),
        Lifecycle::Starting => person("a decision: its start is incomplete", resume("some members are still stopped")),
        Lifecycle::Decommissioning => {
            person("a decision: its removal is incomplete", resume("something of it is left on its nodes"))
        }
        Lifecycle::Failed | Lifecycle::Cancelled => {
            person("a decision to continue or to remove it", NextAction::resume_or_remove(of.name))
        }
    }
}

fn in_operation(of: &WorkloadRow<'_>, open: &Open<'_>) -> Waiting {
    if let Some(step) = open.current.as_ref().and_then(current_step) {
        return step;
    }
    let what = match open.state {
        OperationState::Queued => "its operation to begin",
        OperationState::Running
        | OperationState::Waiting
        | OperationState::Succeeded
        | OperationState::Failed
        | OperationState::Cancelled
        | OperationState::NeedsAttention => "the platform to begin the next step of its operation",
    };
    let next = NextAction::show_workload("wait; an operation is under way", of.name);
    Waiting::new(what, WaitingFrom::Platform, open.since, next)
}

/// Explains a running workload without an open operation.
fn running(of: &WorkloadRow<'_>) -> Option<Waiting> {
    if is_settled(of) {
        return None;
    }
    if let Some(fault) = of.fault {
        return Some(of_fault(fault, of.updated_at));
    }
    let (what, from) = match of.recovery {
        Recovery::None => ("its members to be healthy", WaitingFrom::Node),
        Recovery::Retrying | Recovery::Reconciling => ("its members to be healthy", WaitingFrom::Platform),
        Recovery::Resumable => ("a decision to resume its operation", WaitingFrom::Tenant),
        Recovery::RepairAvailable => ("a repair", WaitingFrom::Tenant),
        Recovery::ManualIntervention => ("the cause of its fault to be removed", WaitingFrom::Tenant),
        Recovery::Terminal => ("its decommission", WaitingFrom::Tenant),
    };
    let next = NextAction::show_workload("check its members", of.name);
    let seen = format!("its health is {}", of.health);
    Some(Waiting::new(what, from, of.updated_at, next).with_evidence(Some(&seen)))
}

/// Explains the wait for a controller that has not reported about the workload's present generation; `None` if it has.
pub fn controller(of: &ControllerRow<'_>) -> Option<Waiting> {
    let seen = match of.reported {
        Some(generation) if generation >= of.generation => return None,
        Some(generation) => format!("its last report is about generation {generation}"),
        None => "it has not reported yet".to_owned(),
    };
    let what = format!("{} to report about generation {}", of.account, of.generation);
    let next = NextAction::show_workload("check that the controller runs and may report", of.workload);
    Some(Waiting::new(what, WaitingFrom::Controller, of.since, next).with_evidence(Some(&seen)))
}
