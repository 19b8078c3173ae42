//! Who cures a fault, and the command for it.

use gpuaas_model::{FaultClass, Lifecycle, MemberState, NextAction};
use gpuaas_planner::{MemberView, WorkloadView};

use crate::names;

/// The cure of a fault. Its class follows from it, so that class and next action cannot disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A repair cures it, for this reason: of the control plane for a server, of the member for an agent.
    Repair(&'static str),
    /// Repeating the operation cures it, for this reason. Before the first deployment has ended there is nothing to repair.
    Resume(&'static str),
    /// The tenant does this, and then resumes.
    ThenResume(&'static str),
    /// The operator does this on the node, because a tenant has no shell there; then the tenant resumes.
    AskOperator(&'static str),
    /// Decommission and deploy again, for this reason.
    Redeploy(&'static str),
    /// The tenant reads the member's log.
    ReadLog,
}

/// What a fault is about: a member of a workload and its machine.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Name of the member.
    pub member: &'a str,
    /// Name of the member's machine.
    pub machine: &'a str,
    /// True for a member of the control plane.
    pub is_server: bool,
    /// True once the first deployment has ended with a usable cluster: from then on the workload can be repaired.
    pub is_deployed: bool,
    /// True for a member that is being removed, or whose workload is stopped or being stopped: it is not repaired.
    pub is_leaving: bool,
}

impl Remedy {
    /// Returns the class of a fault with this cure. It is never `Retryable`: the platform does not repeat a step whose fault has a row.
    pub const fn class(self) -> FaultClass {
        match self {
            Self::Repair(_) | Self::Resume(_) => FaultClass::Repairable,
            Self::ThenResume(_) | Self::AskOperator(_) | Self::ReadLog => FaultClass::Manual,
            Self::Redeploy(_) => FaultClass::Terminal,
        }
    }

    /// Returns who must act before the platform can continue.
    pub const fn who(self) -> &'static str {
        match self {
            Self::AskOperator(_) => "operator",
            Self::Repair(_) | Self::Resume(_) | Self::ThenResume(_) | Self::Redeploy(_) | Self::ReadLog => "tenant",
        }
    }

    /// Returns the next action for this subject.
    pub fn next(self, of: &Subject<'_>) -> NextAction {
        match self {
            Self::Repair(reason) if of.is_server => NextAction::repair_control_plane(reason, of.workload),
            Self::Repair(reason) => NextAction::repair_member(reason, of.workload, of.member),
            Self::Resume(reason) => NextAction::resume(reason, of.workload),
            Self::ThenResume(first) => NextAction::then_resume(first, of.workload),
            Self::AskOperator(what) => NextAction::ask_operator(what, of.machine, of.workload),
            Self::Redeploy(reason) => NextAction::redeploy(reason, of.workload),
            Self::ReadLog => NextAction::read_log(of.workload, of.member),
        }
    }
}

impl<'a> Subject<'a> {
    /// Returns the subject for a member of `workload`.
    pub(crate) fn of(member: &'a MemberView, workload: &'a WorkloadView) -> Self {
        Self {
            workload: workload.name.as_str(),
            member: &member.name,
            machine: member.machine.name.as_str(),
            is_server: member.component_key == names::SERVER,
            is_deployed: is_deployed(workload.lifecycle),
            is_leaving: matches!(member.state, MemberState::Removing { .. } | MemberState::Removed)
                || matches!(workload.lifecycle, Lifecycle::Stopping | Lifecycle::Stopped),
        }
    }
}

/// Returns true if the workload can be repaired: its deployment has ended with a usable cluster, and its removal has not begun.
const fn is_deployed(lifecycle: Lifecycle) -> bool {
    match lifecycle {
        Lifecycle::Running | Lifecycle::Stopping | Lifecycle::Stopped | Lifecycle::Starting => true,
        Lifecycle::Requested
        | Lifecycle::Deploying
        | Lifecycle::Decommissioning
        | Lifecycle::Decommissioned
        | Lifecycle::Failed
        | Lifecycle::Cancelled => false,
    }
}
