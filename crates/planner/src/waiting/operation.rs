//! Explains operations.

use gpuaas_model::{Fault, NextAction, OperationId, OperationState, Timestamp, Waiting, WaitingFrom};

use super::{
    decision::decision,
    step::{StepRow, current_step},
};

/// The part of an operation's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct OperationRow<'a> {
    /// Id of the operation.
    pub id: OperationId,
    /// Name or id of its workload.
    pub workload: &'a str,
    /// State of the operation.
    pub state: OperationState,
    /// True if no further step begins: a caller requested its cancellation, or it yields to a person's request.
    pub cancel_requested: bool,
    /// Its first fault.
    pub fault: Option<&'a Fault>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its first step began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Its first step that is running or in backoff.
    pub current: Option<StepRow<'a>>,
}

/// Explains an operation that is open or needs attention; `None` for every other one.
pub fn operation(of: &OperationRow<'_>) -> Option<Waiting> {
    match of.state {
        OperationState::Queued => {
            let next = NextAction::watch(of.id);
            let queued = Waiting::new("its first step to begin", WaitingFrom::Platform, of.created_at, next);
            Some(queued.with_evidence(Some("accepted; no step has begun")))
        }
        OperationState::Running | OperationState::Waiting => Some(open(of)),
        OperationState::NeedsAttention => {
            let (since, next) = (of.ended_at.unwrap_or(of.created_at), NextAction::resume_or_remove(of.workload));
            Some(decision(of.fault, "a decision to continue", since, next))
        }
        OperationState::Succeeded | OperationState::Failed | OperationState::Cancelled => None,
    }
}

fn open(of: &OperationRow<'_>) -> Waiting {
    let current = of.current.as_ref().and_then(current_step);
    let since = of.started_at.unwrap_or(of.created_at);
    match (current, of.cancel_requested) {
        (Some(step), true) => {
            let seen = format!("no other step begins; running: {}", step.what);
            let next = NextAction::await_cancellation(of.id);
            let ending = Waiting::new("its running steps to end", step.from, step.since, next);
            ending.with_evidence(Some(&seen)).until(step.until)
        }
        (Some(step), false) => step,
        (None, true) => {
            let next = NextAction::await_cancellation(of.id);
            Waiting::new("the platform to cancel it", WaitingFrom::Platform, since, next)
        }
        (None, false) => {
            Waiting::new("the platform to begin its next step", WaitingFrom::Platform, since, NextAction::watch(of.id))
        }
    }
}
