//! Decides which operations the lifecycle of a workload allows. No other code decides it.

use gpuaas_model::{Code, Lifecycle, Name, OperationKind, Reason};

use crate::request::PlanRefusal;

/// How a lifecycle answers to an operation.
enum Answer {
    Allowed,
    /// The workload is already in the state to which the operation leads.
    Done,
    Refused,
}

/// Returns true if an operation of this kind can be requested in this lifecycle, when no other one is open.
pub fn allows(kind: OperationKind, lifecycle: Lifecycle) -> bool {
    matches!(answer(kind, lifecycle), Answer::Allowed)
}

/// Refuses an operation that the lifecycle of workload `name` does not allow.
pub fn check(kind: OperationKind, lifecycle: Lifecycle, name: &Name) -> Result<(), PlanRefusal> {
    match answer(kind, lifecycle) {
        Answer::Allowed => Ok(()),
        Answer::Done => {
            let detail = format!("{name} is {lifecycle} already; nothing was changed");
            Err(PlanRefusal::refused("kind", Code::NothingToDo, detail, format!("see: gpuaas workload show {name}")))
        }
        Answer::Refused => {
            let detail = format!("{name} is {lifecycle}; {kind} needs {}", needed(kind));
            Err(PlanRefusal::refused("kind", Code::StateConflict, detail, next(lifecycle, name)))
        }
    }
}

/// Returns the reason against a restart of workload `name`, which no app has: it would interrupt every member and correct nothing.
pub fn against_restart(name: &Name) -> Reason {
    let detail =
        format!("{name} cannot be restarted as a whole: that would interrupt every member and correct nothing");
    let next = format!(
        "correct what deviates without restarting anything: gpuaas workload reconcile {name}; or restart what does not work: \
         gpuaas workload repair {name} --scope whole-runtime; or stop and start everything: gpuaas workload stop {name}"
    );
    Reason { field: "kind".to_owned(), code: Code::RestartUnsupported, detail, next: Some(next) }
}

fn answer(kind: OperationKind, lifecycle: Lifecycle) -> Answer {
    use {Lifecycle as L, OperationKind as K};
    match (kind, lifecycle) {
        (K::Deploy, _) => Answer::Refused,
        (K::Decommission, L::Decommissioned) => Answer::Done,
        (K::Decommission, _) => Answer::Allowed,
        (
            K::AddMember
            | K::DrainMember
            | K::UncordonMember
            | K::RemoveMember
            | K::ReplaceMember
            | K::Reconcile
            | K::Upgrade
            | K::Snapshot
            | K::Restore
            | K::RotateCertificates,
            L::Running,
        ) => Answer::Allowed,
        // A stop or start that did not end leaves the workload between the two.
        (K::Stop, L::Running | L::Stopping | L::Starting) => Answer::Allowed,
        (K::Stop, L::Stopped) => Answer::Done,
        (K::Start, L::Stopped | L::Stopping | L::Starting) => Answer::Allowed,
        (K::Start, L::Running) => Answer::Done,
        (K::Repair, L::Running | L::Starting | L::Failed) => Answer::Allowed,
        (
            K::AddMember
            | K::DrainMember
            | K::UncordonMember
            | K::RemoveMember
            | K::ReplaceMember
            | K::Stop
            | K::Start
            | K::Reconcile
            | K::Repair
            | K::Upgrade
            | K::Snapshot
            | K::Restore
            | K::RotateCertificates,
            L::Requested
            | L::Deploying
            | L::Stopping
            | L::Stopped
            | L::Starting
            | L::Decommissioning
            | L::Decommissioned
            | L::Failed
            | L::Cancelled,
        ) => Answer::Refused,
    }
}

fn needed(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Start => "a stopped workload",
        OperationKind::Repair => "a workload that is running, or whose deployment or start failed",
        OperationKind::Deploy
        | OperationKind::AddMember
        | OperationKind::DrainMember
        | OperationKind::UncordonMember
        | OperationKind::RemoveMember
        | OperationKind::ReplaceMember
        | OperationKind::Stop
        | OperationKind::Reconcile
        | OperationKind::Upgrade
        | OperationKind::Snapshot
        | OperationKind::Restore
        | OperationKind::RotateCertificates
        | OperationKind::Decommission => "a running workload",
    }
}

fn next(lifecycle: Lifecycle, name: &Name) -> String {
    match lifecycle {
        Lifecycle::Decommissioned => "deploy a new workload: gpuaas workload deploy --help".to_owned(),
        Lifecycle::Stopped => format!("start it first: gpuaas workload start {name}"),
        Lifecycle::Requested
        | Lifecycle::Deploying
        | Lifecycle::Running
        | Lifecycle::Stopping
        | Lifecycle::Starting
        | Lifecycle::Decommissioning
        | Lifecycle::Failed
        | Lifecycle::Cancelled => format!("see its state and what to do: gpuaas workload show {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(lifecycle: Lifecycle) -> Vec<&'static str> {
        OperationKind::ALL.iter().filter(|kind| allows(**kind, lifecycle)).map(|kind| kind.as_str()).collect()
    }

    #[test]
    fn each_lifecycle_allows_what_leads_out_of_it() {
        assert_eq!(allowed(Lifecycle::Stopped), ["start", "decommission"]);
        assert_eq!(allowed(Lifecycle::Stopping), ["stop", "start", "decommission"]);
        assert_eq!(allowed(Lifecycle::Starting), ["stop", "start", "repair", "decommission"]);
        assert_eq!(allowed(Lifecycle::Failed), ["repair", "decommission"]);
        assert_eq!(allowed(Lifecycle::Cancelled), ["decommission"]);
        assert_eq!(allowed(Lifecycle::Decommissioned), [""; 0]);
        assert!(!allows(OperationKind::Start, Lifecycle::Running) && allows(OperationKind::Stop, Lifecycle::Running));
    }

    #[test]
    fn refused_restart_points_at_reconcile_and_repair() {
        let reason = against_restart(&"train".parse().expect("a name"));
        assert_eq!(reason.code, Code::RestartUnsupported);
        let next = reason.next.expect("a next action");
        assert!(
            next.contains("gpuaas workload reconcile train") && next.contains("gpuaas workload repair train"),
            "{next}"
        );
    }

    #[test]
    fn refusals_say_whether_it_is_done_or_what_is_needed() {
        let name: Name = "train".parse().expect("a name");
        let refused = |kind, lifecycle| match check(kind, lifecycle, &name) {
            Err(PlanRefusal::Refused(reason)) => (reason.code, reason.detail),
            other => panic!("{other:?}"),
        };
        let (code, detail) = refused(OperationKind::Stop, Lifecycle::Stopped);
        assert_eq!((code, &*detail), (Code::NothingToDo, "train is stopped already; nothing was changed"));
        let (code, detail) = refused(OperationKind::DrainMember, Lifecycle::Stopped);
        assert_eq!((code, &*detail), (Code::StateConflict, "train is stopped; drain_member needs a running workload"));
    }
}
