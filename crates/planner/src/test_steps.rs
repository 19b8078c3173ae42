//! Steps for tests.

use crate::plan::{FailureScope, RecordKind, Retry, StepAction, StepKey, StepSpec};

/// Returns a milestone without needs, with one attempt, whose failure affects only its member.
pub(crate) fn step(key: &str, phase: &str) -> StepSpec {
    StepSpec {
        key: StepKey::named(key),
        phase: phase.into(),
        member: None,
        action: StepAction::Record { record: RecordKind::Milestone },
        needs: Vec::new(),
        after: Vec::new(),
        begins: None,
        ends: None,
        deadline_ms: 1_000,
        retry: Retry::NEVER,
        scope: FailureScope::Member,
    }
}
