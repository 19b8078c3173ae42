//! What is known of a workload's drift, and when the platform corrects it by itself.
//!
//! All rules about it are here:
//! - The platform corrects what a reconciliation corrects, and nothing else: those differences whose action is one ([`is_correctable`]).
//! - It waits before each attempt, longer every time, and makes at most [`ATTEMPTS_MAX`] within [`WINDOW`] ([`Drift::next`]).
//! - What is left then, and what no reconciliation corrects, is a fault of the workload ([`Drift::fault`]).
//!
//! The times of the attempts are part of the workload's row, so a restarted control plane counts and waits as before.

use std::time::Duration;

use gpuaas_model::{Code, Evidence, Fault, FaultClass, Lifecycle, MemberId, Name, NextAction, Recovery, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{difference::Difference, status::Status};

/// Most reconciliations that the platform starts for one workload within [`WINDOW`]: if a program changes a file again after each of them,
/// more would not help.
pub const ATTEMPTS_MAX: usize = WAITS.len();
/// The time within which attempts are counted.
pub const WINDOW: Duration = Duration::from_secs(60 * 60);
/// Waits before the first and each further attempt. The first lets a person or a tool finish several changes; the others are long enough for
/// a program that changes a file back, for example a configuration tool, to do so.
const WAITS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(30), Duration::from_secs(120)];
/// Most differences that are kept of one source. One node reports at most 32.
pub const DIFFERENCES_MAX: usize = 32;

/// The drift of a workload. Empty for one that never deviated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// The differences that are known, by source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenDifference>,
    /// Starts of the platform's reconciliations, oldest first; older ones than [`WINDOW`] may be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Timestamp>,
    /// Time of the next reconciliation by the platform, if one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// A difference with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenDifference {
    /// Where it was found.
    pub source: DriftSource,
    /// The difference; its `since` is the time at which it was first found.
    pub difference: Difference,
}

/// Where differences are found. The result of each check replaces the one before of the same source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftSource {
    /// The node of this member.
    Node(MemberId),
    /// The app's cluster.
    Cluster,
}

/// What follows from a drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextReconciliation {
    /// Nothing that a reconciliation corrects is known.
    None,
    /// The platform reconciles at this time.
    Due(Timestamp),
    /// The platform has reconciled as often as it may.
    Exhausted,
}

impl Drift {
    /// Returns true if nothing needs to be kept.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the drift after a check of `source` found these differences: at most [`DIFFERENCES_MAX`], each with the time at which it was
    /// first found.
    #[must_use]
    pub fn with(&self, source: DriftSource, found: Vec<Difference>, now: Timestamp) -> Self {
        let known = |of: &Difference| {
            let is_same = |seen: &&SeenDifference| {
                let Difference { member, field, observed, .. } = &seen.difference;
                seen.source == source && (member, field, observed) == (&of.member, &of.field, &of.observed)
            };
            self.seen.iter().find(is_same).and_then(|seen| seen.difference.since)
        };
        let found = found.into_iter().take(DIFFERENCES_MAX).map(|difference| {
            let since = Some(known(&difference).unwrap_or(now));
            SeenDifference { source, difference: Difference { since, ..difference } }
        });
        let others = self.seen.iter().filter(|seen| seen.source != source).cloned();
        let mut seen: Vec<SeenDifference> = others.chain(found).collect();
        seen.sort_by_key(|seen| seen.source);
        Self { seen, ..self.clone() }
    }

    /// Returns the drift without the differences on nodes of members that are not `present`.
    #[must_use]
    pub fn of_members(&self, present: &[MemberId]) -> Self {
        let is_present = |seen: &&SeenDifference| match seen.source {
            DriftSource::Node(member) => present.contains(&member),
            DriftSource::Cluster => true,
        };
        Self { seen: self.seen.iter().filter(is_present).cloned().collect(), ..self.clone() }
    }

    /// Returns the drift after the platform has started a reconciliation.
    #[must_use]
    pub fn attempted(&self, now: Timestamp) -> Self {
        let mut attempts: Vec<Timestamp> = self.recent(now).collect();
        attempts.push(now);
        Self { attempts, due_at: None, ..self.clone() }
    }

    /// Returns the drift without the attempt that began at `at`: it yielded to a person, so it shows nothing about what it was to correct.
    #[must_use]
    pub fn yielded(&self, at: Timestamp) -> Self {
        let attempts = self.attempts.iter().copied().filter(|attempt| *attempt != at).collect();
        Self { attempts, ..self.clone() }
    }

    /// Returns what the platform does about the drift of the workload named `name`.
    pub fn next(&self, name: &Name, now: Timestamp) -> NextReconciliation {
        let correctable = self.seen.iter().filter(|seen| is_correctable(&seen.difference, name));
        let Some(since) = correctable.map(|seen| seen.difference.since.unwrap_or(now)).min() else {
            return NextReconciliation::None;
        };
        let recent: Vec<Timestamp> = self.recent(now).collect();
        match (WAITS.get(recent.len()), recent.last()) {
            (None, _) => NextReconciliation::Exhausted,
            (Some(wait), Some(last)) => NextReconciliation::Due(since.max(*last).plus(*wait)),
            (Some(wait), None) => NextReconciliation::Due(since.plus(*wait)),
        }
    }

    /// Returns the fault of the workload named `name` that only a person can end: a difference that no reconciliation corrects, or one that
    /// came back after each of them.
    pub fn fault(&self, name: &Name, now: Timestamp) -> Option<Fault> {
        let is_lasting = |seen: &&SeenDifference| !is_correctable(&seen.difference, name);
        if let Some(seen) = self.seen.iter().find(is_lasting) {
            let action = &seen.difference.action;
            let class = if is_repair(action, name) { FaultClass::Repairable } else { FaultClass::Manual };
            return Some(fault(&seen.difference, "no reconciliation corrects this", class, action.clone()));
        }
        let first = self.seen.first().filter(|_| self.next(name, now) == NextReconciliation::Exhausted)?;
        let why = format!("it came back after each of {ATTEMPTS_MAX} reconciliations within an hour");
        let next = NextAction::reconcile(
            &format!("only after what changes it is found (gpuaas workload diff {name}) and stopped"),
            name,
        );
        Some(fault(&first.difference, &why, FaultClass::Manual, next))
    }

    /// Returns the differences in one sentence of at most [`Evidence::TEXT_BYTES_MAX`] bytes.
    pub fn summary(&self) -> String {
        let texts: Vec<String> = self.seen.iter().map(|seen| sentence(&seen.difference)).collect();
        gpuaas_model::cut(&texts.join("; "), Evidence::TEXT_BYTES_MAX).into_owned()
    }

    /// Returns the status with `reconciling` while a reconciliation is due and nothing else is wrong.
    #[must_use]
    pub fn shown(&self, status: Status) -> Status {
        let is_due = self.due_at.is_some() && status.lifecycle == Lifecycle::Running;
        match status.recovery {
            Recovery::None if is_due => Status { recovery: Recovery::Reconciling, ..status },
            _ => status,
        }
    }

    /// Returns the attempts that still count, oldest first.
    fn recent(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.attempts.iter().copied().filter(move |at| now.since(*at) < WINDOW)
    }
}

/// Returns true if a reconciliation of the workload named `name` corrects this difference, which its action then names.
pub fn is_correctable(difference: &Difference, name: &Name) -> bool {
    difference.action.command == NextAction::reconcile("", name).command
}

/// Returns true if this fault came from [`Drift::fault`].
pub fn is_of_drift(fault: &Fault) -> bool {
    fault.code == Code::DriftPersists.as_str()
}

fn is_repair(action: &NextAction, name: &Name) -> bool {
    let repair = ["gpuaas", "workload", "repair", name.as_str()];
    action.command.as_ref().is_some_and(|command| command.split(' ').take(repair.len()).eq(repair))
}

fn fault(difference: &Difference, why: &str, class: FaultClass, next: NextAction) -> Fault {
    Fault {
        code: Code::DriftPersists.to_string(),
        class,
        summary: format!("{}; {why}", sentence(difference)),
        evidence: Some(Evidence::new(difference.field.clone(), difference.since, &difference.observed)),
        next,
    }
}

fn sentence(difference: &Difference) -> String {
    let Difference { member, field, observed, .. } = difference;
    match member {
        Some(member) => format!("{member}: {field}: {observed}"),
        None => format!("{field}: {observed}"),
    }
}

#[cfg(test)]
mod tests;
