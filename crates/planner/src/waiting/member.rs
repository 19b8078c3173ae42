//! Explains members.

use gpuaas_model::{Fault, Health, MemberState, NextAction, Timestamp, Waiting, WaitingFrom};

use super::{
    decision::{decision, of_fault},
    step::{StepRow, current_step},
};

/// The part of a member's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct MemberRow<'a> {
    /// Name of the member, for example `agent-2`.
    pub name: &'a str,
    /// Name or id of its workload.
    pub workload: &'a str,
    /// State of the member.
    pub state: &'a MemberState,
    /// Health of the member.
    pub health: Health,
    /// What its unit, its node or its controller shows.
    pub fault: Option<&'a Fault>,
    /// Name of the controller that reported it as progressing.
    pub reported_by: Option<&'a str>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// True while an operation of its workload is open.
    pub is_busy: bool,
    /// The first step for it that is running or in backoff.
    pub current: Option<StepRow<'a>>,
}

impl MemberRow<'_> {
    /// Returns true if nothing has to happen to the member: it is removed, or serves its role and nothing is wrong.
    pub fn is_settled(&self) -> bool {
        match self.state {
            MemberState::Removed => true,
            MemberState::Ready { .. } => self.is_well() && self.current.is_none(),
            MemberState::Pending
            | MemberState::Preparing { .. }
            | MemberState::Bootstrapping { .. }
            | MemberState::Joining { .. }
            | MemberState::Stopped { .. }
            | MemberState::Draining { .. }
            | MemberState::Drained { .. }
            | MemberState::Removing { .. }
            | MemberState::Failed { .. } => false,
        }
    }

    fn is_well(&self) -> bool {
        self.fault.is_none() && matches!(self.health, Health::Healthy | Health::None)
    }
}

/// Explains a member that has not [settled](MemberRow::is_settled).
pub fn member(of: &MemberRow<'_>) -> Option<Waiting> {
    let step = of.current.as_ref().and_then(current_step);
    let resume = |what: &str| NextAction::resume(what, of.workload);
    match of.state {
        MemberState::Removed => None,
        MemberState::Pending => {
            let ended =
                || decision(of.fault, "an operation that deploys it", of.created_at, resume("it has not begun"));
            Some(step.unwrap_or_else(|| in_operation(of, of.created_at, ended)))
        }
        MemberState::Preparing { since } | MemberState::Bootstrapping { since } | MemberState::Joining { since } => {
            let ended = || decision(of.fault, "an operation that continues it", *since, resume("it is not ready yet"));
            Some(step.unwrap_or_else(|| in_operation(of, *since, ended)))
        }
        MemberState::Ready { since } => step.or_else(|| serving(of, *since)),
        MemberState::Stopped { since } => {
            let ended = || decision(of.fault, "a start", *since, NextAction::start(of.workload));
            Some(step.unwrap_or_else(|| in_operation(of, *since, ended)))
        }
        MemberState::Draining { since } => {
            let next = || NextAction::uncordon_or_resume(of.workload, of.name);
            let ended = || decision(of.fault, "a decision: it is cordoned and not drained", *since, next());
            Some(step.unwrap_or_else(|| in_operation(of, *since, ended)))
        }
        MemberState::Drained { since } => {
            let next = || NextAction::uncordon_or_remove(of.workload, of.name);
            let ended = || decision(of.fault, "a decision: it is drained", *since, next());
            Some(step.unwrap_or_else(|| in_operation(of, *since, ended)))
        }
        MemberState::Removing { since } => {
            let ended = || {
                decision(
                    of.fault,
                    "an operation that continues its removal",
                    *since,
                    resume("its removal is incomplete"),
                )
            };
            Some(step.unwrap_or_else(|| in_operation(of, *since, ended)))
        }
        MemberState::Failed { since, fault } => Some(step.unwrap_or_else(|| of_fault(fault, *since))),
    }
}

/// Explains a member that no step concerns at present: by the open operation, otherwise as `ended` does.
fn in_operation(of: &MemberRow<'_>, since: Timestamp, ended: impl FnOnce() -> Waiting) -> Waiting {
    if !of.is_busy {
        return ended();
    }
    let next = NextAction::show_workload("wait; an operation is under way", of.workload);
    let what = format!("the operation to reach {}", of.name);
    Waiting::new(what, WaitingFrom::Platform, since, next).with_evidence(of.fault.map(|fault| fault.summary.as_str()))
}

/// Explains a ready member that is not healthy; `None` for a healthy one.
fn serving(of: &MemberRow<'_>, since: Timestamp) -> Option<Waiting> {
    if of.is_well() {
        return None;
    }
    let since = since.max(of.updated_at);
    if let Some(fault) = of.fault {
        return Some(of_fault(fault, since));
    }
    let next = NextAction::read_log(of.workload, of.name);
    Some(match of.reported_by {
        Some(by) => {
            let seen = format!("{by} reports {}", of.health);
            Waiting::new("its controller to report it healthy", WaitingFrom::Controller, since, next)
                .with_evidence(Some(&seen))
        }
        None => {
            let seen = format!("its health is {}", of.health);
            Waiting::new("its service to be healthy", WaitingFrom::Node, since, next).with_evidence(Some(&seen))
        }
    })
}
