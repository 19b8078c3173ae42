//! Finds what waits without an explanation: an oracle for tests and for the simulation.

use gpuaas_model::{OperationState, StepState, Timestamp, Waiting};

use super::{
    member::{MemberRow, member},
    operation::{OperationRow, operation},
    step::{StepRow, steps},
    workload::{WorkloadRow, is_settled, workload},
};
use crate::schedule::{StepProgress, schedule};

/// The rows of one workload, from one consistent read.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// The workload.
    pub workload: WorkloadRow<'a>,
    /// Its members, removed ones too.
    pub members: Vec<MemberRow<'a>>,
    /// Its newest operation.
    pub operation: Option<OperationRow<'a>>,
    /// The steps of that operation.
    pub steps: Vec<StepRow<'a>>,
}

/// Returns what waits in these rows and is not explained, each as a sentence; empty if everything is.
///
/// It reports:
/// - what has not ended or settled and has no explanation, or one that is empty, lacks its next action or began after `now`;
/// - what has settled and has an explanation;
/// - a failed member, a retry or a need for attention without evidence;
/// - an open operation without a step that runs, will run or was skipped, so that nothing ever ends it.
pub fn unexplained(rows: &Rows<'_>, now: Timestamp) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: String, settled: bool, needs_evidence: bool, waiting: Option<&Waiting>| {
        found.extend(finding(settled, needs_evidence, waiting, now).map(|gap| format!("{what} {gap}")));
    };
    let of = &rows.workload;
    // A decommission that only members failed has its evidence with them.
    check(format!("workload {} ({})", of.name, of.lifecycle), is_settled(of), false, workload(of).as_ref());
    for of in &rows.members {
        let needs = of.state.fault().is_some() && of.current.is_none();
        let what = format!("member {} ({})", of.name, of.state.name());
        check(what, of.is_settled(), needs, member(of).as_ref());
    }
    if let Some(of) = &rows.operation {
        let needs = of.state == OperationState::NeedsAttention;
        let settled = of.state.is_final() && !needs;
        check(format!("operation {} ({})", of.id, of.state), settled, needs, operation(of).as_ref());
    }
    for (of, waiting) in rows.steps.iter().zip(steps(&rows.steps)) {
        let needs = of.state == StepState::Backoff;
        check(format!("step {} ({})", of.spec.key, of.state), of.state.is_final(), needs, waiting.as_ref());
    }
    found.extend(stalled(rows, now));
    found
}

/// Returns what is wrong with one explanation.
fn finding(settled: bool, needs_evidence: bool, waiting: Option<&Waiting>, now: Timestamp) -> Option<String> {
    match waiting {
        None if settled => None,
        None => Some("waits for nothing".to_owned()),
        Some(_) if settled => Some("has settled and waits".to_owned()),
        Some(waiting) => match waiting.missing() {
            Some(gap) => Some(format!("waits without {gap}")),
            None if waiting.since > now => Some(format!("waits since {}, which is later than {now}", waiting.since)),
            None if needs_evidence && waiting.evidence.is_none() => Some("waits without evidence".to_owned()),
            None => None,
        },
    }
}

/// Returns the open operation if no step of it runs and none will.
fn stalled(rows: &Rows<'_>, now: Timestamp) -> Option<String> {
    let operation = rows.operation.as_ref().filter(|of| !of.state.is_final())?;
    let is_running = rows.steps.iter().any(|step| step.state == StepState::Running);
    let progress = |step: &StepRow<'_>| StepProgress {
        spec: step.spec.clone(),
        state: step.state,
        attempts: step.attempts,
        not_before: step.not_before,
    };
    let steps: Vec<StepProgress> = rows.steps.iter().map(progress).collect();
    let next = schedule(&steps, operation.cancel_requested, now);
    let will_continue =
        is_running || !next.run.is_empty() || !next.skip.is_empty() || next.wake_at.is_some() || next.ending.is_some();
    (!will_continue).then(|| format!("operation {} ({}) waits for no step", operation.id, operation.state))
}
