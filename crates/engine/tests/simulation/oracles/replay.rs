//! Replays the events of the project in their order, once, and judges each change that they announce.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_model::{EventKind, Timestamp};
use gpuaas_planner::{RecordKind, StepAction};
use gpuaas_store::EventRecord;

use super::{Oracle, Rows};

/// Legal changes of a member, apart from none: a state with the states that may follow.
const MEMBER: Table = &[
    ("pending", "preparing removing failed"),
    ("preparing", "bootstrapping joining removing failed"),
    ("bootstrapping", "preparing ready removing failed"),
    ("joining", "preparing ready removing failed"),
    ("ready", "preparing stopped draining removing failed"),
    ("stopped", "preparing ready removing failed"),
    ("draining", "preparing ready stopped drained removing failed"),
    ("drained", "preparing ready stopped draining removing failed"),
    ("removing", "removed failed"),
    ("failed", "preparing bootstrapping joining ready stopped draining removing removed"),
];
const ALLOCATION: Table = &[
    ("requested", "provisioning"),
    ("provisioning", "active failed"),
    ("active", "releasing"),
    ("releasing", "released release_failed"),
    ("release_failed", "releasing"),
];
const OPERATION: Table = &[
    ("queued", "running succeeded cancelled needs_attention"),
    ("running", "waiting succeeded cancelled needs_attention"),
    ("waiting", "running succeeded cancelled needs_attention"),
    ("needs_attention", "failed"),
];
const STEP: Table = &[
    ("pending", "running failed skipped cancelled"),
    ("running", "backoff succeeded failed cancelled"),
    ("backoff", "running failed skipped cancelled"),
];
/// States that nothing leaves. A failed member is repaired, and a failed operation was superseded.
const TERMINAL: [&str; 4] = ["removed", "released", "succeeded", "cancelled"];
/// Operations that must not interrupt a healthy member.
const SPARING: [&str; 7] =
    ["deploy", "add_member", "drain_member", "uncordon_member", "start", "reconcile", "replace_member"];

type Table = &'static [(&'static str, &'static str)];

/// Judges all events of the project.
pub(super) fn check(rows: &Rows) -> Vec<(Oracle, String)> {
    let mut replay = Replay::of(rows);
    for event in rows.streams.iter().skip(1).flatten() {
        replay.take(event);
    }
    replay.found
}

struct Replay<'a> {
    /// The last state of each object.
    states: BTreeMap<&'a str, &'a str>,
    /// Since when members are ready and healthy.
    serving_since: BTreeMap<&'a str, Timestamp>,
    /// Members that have a fault.
    faulty: BTreeSet<&'a str>,
    /// The last event of the workload.
    workload: Option<&'a EventRecord>,
    /// The operation that runs, with its kind.
    running: Option<(&'a str, &'a str)>,
    ended: BTreeSet<&'a str>,
    cancelled: BTreeSet<&'a str>,
    /// When operations were accepted.
    accepted: BTreeMap<String, Timestamp>,
    /// Steps without an effect, which are reached also after a cancellation.
    milestones: BTreeSet<String>,
    found: Vec<(Oracle, String)>,
}

impl<'a> Replay<'a> {
    fn of(rows: &Rows) -> Self {
        let steps = rows.operations.iter().flat_map(|(_, steps)| steps);
        let milestones =
            steps.filter(|step| matches!(step.spec.action, StepAction::Record { record: RecordKind::Milestone }));
        Self {
            states: BTreeMap::new(),
            serving_since: BTreeMap::new(),
            faulty: BTreeSet::new(),
            workload: None,
            running: None,
            ended: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            accepted: rows.operations.iter().map(|(of, _)| (of.id.to_string(), of.created_at)).collect(),
            milestones: milestones.map(|step| step.id.to_string()).collect(),
            found: Vec::new(),
        }
    }

    fn take(&mut self, event: &'a EventRecord) {
        match event.kind {
            EventKind::MemberChanged => self.member(event),
            EventKind::AllocationChanged => {
                self.change(event, "allocation", ALLOCATION);
            }
            EventKind::StepChanged => self.step(event),
            EventKind::OperationStarted
            | EventKind::OperationCancelRequested
            | EventKind::OperationEnded
            | EventKind::OperationSuperseded => self.operation(event),
            EventKind::WorkloadRequested | EventKind::WorkloadChanged => self.workload(event),
            _ => {}
        }
    }

    /// Judges a change of state, and returns the state before.
    fn change(&mut self, event: &'a EventRecord, what: &str, legal: Table) -> Option<&'a str> {
        let after = text(event, "state");
        let before = self.states.insert(&event.subject_id, after);
        let Some(from) = before.filter(|before| *before != after) else { return before };
        let is_legal = legal.iter().any(|(state, next)| *state == from && next.split(' ').any(|next| next == after));
        if !is_legal {
            let oracle = if TERMINAL.contains(&from) { Oracle::TerminalStates } else { Oracle::Transitions };
            self.found.push((oracle, format!("{what} {} went from {from} to {after}", event.subject_id)));
        }
        before
    }

    fn member(&mut self, event: &'a EventRecord) {
        let id = event.subject_id.as_str();
        self.change(event, "member", MEMBER);
        let is_taken = matches!(text(event, "state"), "preparing" | "bootstrapping" | "joining");
        if let (true, Some(since), Some((operation, kind))) = (is_taken, self.serving_since.get(id), self.running)
            && SPARING.contains(&kind)
            && self.accepted.get(operation).is_some_and(|accepted| since < accepted)
        {
            let what = format!("{kind} takes the healthy member {} out of service", text(event, "member"));
            self.found.push((Oracle::Effects, what));
        }
        if (text(event, "state"), text(event, "health")) == ("ready", "healthy") {
            self.serving_since.entry(id).or_insert(event.at);
        } else {
            self.serving_since.remove(id);
        }
        if event.data["fault"].is_null() {
            self.faulty.remove(id);
        } else {
            self.faulty.insert(id);
        }
    }

    fn step(&mut self, event: &'a EventRecord) {
        let before = self.change(event, "step", STEP);
        let operation = text(event, "operation");
        if self.ended.contains(operation) {
            let what = format!("step {} is {} after its operation had ended", text(event, "key"), text(event, "state"));
            self.found.push((Oracle::Transitions, what));
        }
        let begins = text(event, "state") == "running" && before != Some("running");
        if begins && self.cancelled.contains(operation) && !self.milestones.contains(&event.subject_id) {
            let what = format!("step {} began after its operation was cancelled", text(event, "key"));
            self.found.push((Oracle::Cancellation, what));
        }
    }

    fn operation(&mut self, event: &'a EventRecord) {
        let id = event.subject_id.as_str();
        self.change(event, "operation", OPERATION);
        if self.ended.contains(id) && event.kind != EventKind::OperationSuperseded {
            self.found.push((Oracle::Transitions, format!("{} of {id} after its end", event.kind)));
        }
        match event.kind {
            EventKind::OperationStarted => self.running = Some((id, text(event, "kind"))),
            EventKind::OperationCancelRequested => {
                self.cancelled.insert(id);
            }
            EventKind::OperationEnded => {
                self.running = None;
                self.ended.insert(id);
                self.check_explained(event);
            }
            _ => {}
        }
    }

    fn workload(&mut self, event: &'a EventRecord) {
        let lifecycle = |event: &'a EventRecord| text(event, "lifecycle");
        if self.workload.map(lifecycle) == Some("decommissioned") && lifecycle(event) != "decommissioned" {
            let what = format!("the workload went from decommissioned to {}", lifecycle(event));
            self.found.push((Oracle::TerminalStates, what));
        }
        self.workload = Some(event);
    }

    /// Checks that a workload that is not at rest when its operation ends has a fault and a recovery.
    fn check_explained(&mut self, ended: &EventRecord) {
        let Some(workload) = self.workload else { return };
        let lifecycle = text(workload, "lifecycle");
        let is_at_rest = matches!(lifecycle, "running" | "stopped" | "decommissioned");
        let has_fault = [workload, ended].iter().any(|event| !event.data["fault"].is_null());
        // A cancellation explains by itself why the operation did not succeed.
        let says_why = has_fault || !self.faulty.is_empty() || text(ended, "state") == "cancelled";
        if !is_at_rest && (!says_why || text(workload, "recovery") == "none") {
            let what = format!("the workload is {lifecycle} after {} and does not say why", text(ended, "kind"));
            self.found.push((Oracle::Explained, what));
        }
    }
}

/// Returns a text of the event's data; empty if it has none of that name.
fn text<'a>(event: &'a EventRecord, field: &str) -> &'a str {
    event.data[field].as_str().unwrap_or_default()
}
