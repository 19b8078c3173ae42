//! Explains waits that only a person ends.

use gpuaas_model::{Fault, FaultClass, NextAction, Timestamp, Waiting, WaitingFrom};

/// Explains what waits for a person because of a fault.
pub(super) fn of_fault(fault: &Fault, since: Timestamp) -> Waiting {
    let what = match fault.class {
        FaultClass::Retryable => "a decision to continue",
        FaultClass::Repairable => "a repair",
        FaultClass::Manual => "the cause of its fault to be removed",
        FaultClass::Terminal => "its decommission",
    };
    let seen = fault.evidence.as_ref().map(|evidence| format!("{}: {}", fault.summary, evidence.text));
    let seen = seen.as_deref().unwrap_or(&fault.summary);
    Waiting::new(what, WaitingFrom::Tenant, since, fault.next.clone()).with_evidence(Some(seen))
}

/// Explains what waits for a person: by its fault, otherwise by `what` and `next`.
pub(super) fn decision(fault: Option<&Fault>, what: &str, since: Timestamp, next: NextAction) -> Waiting {
    match fault {
        Some(fault) => of_fault(fault, since),
        None => Waiting::new(what, WaitingFrom::Tenant, since, next),
    }
}
