//! Names the failure of a step, with the line that shows it as evidence.

use gpuaas_model::{Evidence, Fault};
use gpuaas_planner::{MachineView, MemberView, WorkloadView};
use gpuaas_wire::{session::CLOCK_SKEW_MAX, task::TaskFailure};

use super::{
    journal::{Journal, Sighting, has_symptom, without_backslashes},
    remedy::Subject,
    row::FaultRow,
    table::{CLOCK_SKEW, CRASH_LOOP, DRAIN_BLOCKED, DRAIN_REFUSED, FAULTS, KUBE_NODE_MISSING, NOT_READY},
};
use crate::names;

/// Returns the fault of a failed start of `unit`.
pub(crate) fn diagnose_start(failure: &TaskFailure, unit: &str, member: &MemberView, workload: &WorkloadView) -> Fault {
    let source = format!("journal {}", unit.trim_end_matches(".service"));
    let of = Subject::of(member, workload);
    let journal = Journal::of(failure);
    for row in FAULTS {
        if let Some(Sighting { at, text }) = journal.shows(row) {
            let evidence = Evidence::new(source, Some(at), &text);
            return clock_fault(row, member, workload, &evidence).unwrap_or_else(|| row.fault(&of, Some(evidence)));
        }
    }
    let has_exited = failure.unit.as_ref().is_some_and(|unit| unit.n_restarts > 0 || unit.exec_main_status != 0);
    let is_error =
        |text: &str| ["level=fatal", "level=error", "FATA[", "ERRO[", "panic:"].iter().any(|of| text.contains(of));
    let error_line = failure.journal.iter().rev().find(|line| is_error(&line.text));
    let evidence = match error_line.or(failure.journal.last()) {
        Some(line) => Evidence::new(source, Some(line.at), &line.text),
        None => Evidence::new(source, None, &failure.message),
    };
    if has_exited { CRASH_LOOP } else { NOT_READY }.fault(&of, Some(evidence))
}

/// Returns the fault of a failed call about a member's KubeNode; `None` if it is not one of RKE2's.
pub(crate) fn diagnose_call(failure: &TaskFailure, member: &MemberView, workload: &WorkloadView) -> Option<Fault> {
    let of = Subject::of(member, workload);
    let evidence = || Some(Evidence::new(format!("cluster of {}", workload.name), None, &failure.message));
    let by_code = [DRAIN_BLOCKED, DRAIN_REFUSED, KUBE_NODE_MISSING].into_iter();
    if let Some(row) = by_code.clone().find(|row| row.code == failure.code.as_str()) {
        // The message names the pods and their budgets.
        let summary = format!("{}: {}", member.name, failure.message);
        return Some(Fault { summary, ..row.fault(&of, evidence()) });
    }
    // A KubeNode that is not Ready at the deadline says why in its condition.
    let message = without_backslashes(&failure.message);
    let row = FAULTS.iter().find(|row| row.in_conditions && has_symptom(row, &message))?;
    Some(row.fault(&of, evidence()))
}

/// Returns the fault of a wrong clock, if a row that a wrong clock imitates was seen while the clock of the member's machine or of a
/// server's is off.
fn clock_fault(row: &FaultRow, member: &MemberView, workload: &WorkloadView, evidence: &Evidence) -> Option<Fault> {
    if !row.blames_clock {
        return None;
    }
    let machines = std::iter::once(member).chain(workload.component(names::SERVER)).map(|member| &member.machine);
    let (machine, seconds) = machines.filter_map(|machine| Some((machine, skew_of(machine)?))).next()?;
    let way = if seconds > 0 { "ahead of" } else { "behind" };
    let by = seconds.unsigned_abs();
    let of = Subject { machine: machine.name.as_str(), ..Subject::of(member, workload) };
    let summary = format!("{}: the clock of {} is {by} s {way} the control plane's", member.name, machine.name);
    Some(Fault { summary, ..CLOCK_SKEW.fault(&of, Some(evidence.clone())) })
}

/// Returns by how many seconds a machine's clock is ahead of the control plane's, if that is more than an enrolled node may be.
fn skew_of(machine: &MachineView) -> Option<i64> {
    machine.clock_skew_seconds.filter(|seconds| seconds.unsigned_abs() > CLOCK_SKEW_MAX.as_secs())
}
