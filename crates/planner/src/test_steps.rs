//! Steps and a manifest for tests.

use std::time::Duration;

use serde_json::Value;

use crate::{
    manifest::Manifest,
    plan::{FailureScope, RecordKind, Retry, StepAction, StepKey, StepSpec},
};

/// Returns the manifest of an app without anything.
pub(crate) fn manifest() -> Manifest {
    Manifest {
        slug: "rke2".into(),
        name: "RKE2".into(),
        summary: String::new(),
        placement_schema: Value::Null,
        added_members_schema: Value::Null,
        config_schema: Value::Null,
        promises: Vec::new(),
        not_promised: Vec::new(),
        phases: Vec::new(),
        tasks: Vec::new(),
        operations: Vec::new(),
        release_files: Vec::new(),
        release_sums: String::new(),
    }
}

/// Returns a milestone without needs, with one attempt, whose failure affects only its member.
pub(crate) fn step(key: &str, phase: &str) -> StepSpec {
    let action = StepAction::Record { record: RecordKind::Milestone };
    let step = StepSpec::new(StepKey::named(key), phase, action, Duration::from_secs(1));
    StepSpec { retry: Retry::NEVER, scope: FailureScope::Member, ..step }
}
