//! The closed task catalog: one parameter type and one result type per [`TaskType`]. Parameter types refuse unknown fields; unknown fields
//! of results are dropped. The types of an app's tasks are in the app's folder.
//!
//! A type's schema version grows when its parameters change shape. An agent lists the versions it supports in its hello, and the control
//! plane sends one of those.

mod artifact;
mod definition;
mod fix;
mod host;
mod machine;
mod requirements;
mod result;
mod schema;
mod secrets;
mod unit;

pub use artifact::{ArtifactFetch, ArtifactFetched, ArtifactRef};
pub use definition::{GENERAL_TASKS, TaskDefinition};
pub use fix::{Applied, Fix, Fixed};
pub use host::{
    DiskFacts, Finding, HostFacts, Noop, NoopDone, Preflight, PreflightReport, Residue, ResidueItem, ResidueKind,
    ResidueReport, Severity,
};
pub use machine::{
    ClockSync, DataDisk, FileSystemFacts, GpuFacts, Inspect, Inspection, MachineFacts, Measure, RouteFacts,
    WriteLatency,
};
pub use requirements::HostRequirements;
pub use secrets::NamedSecrets;
pub use unit::{JournalExcerpt, UnitReport};

use crate::bounds::{Bounded, OutOfBounds, SENTENCE_BYTES_MAX, one_line};
use gpuaas_model::{Code, SecretId, TaskType};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A task type as a Rust type: `Self` holds its parameters.
pub trait TaskSpec: Serialize + DeserializeOwned {
    /// Name of the type in the catalog.
    const TYPE: TaskType;
    /// Newest schema version of the parameters.
    const SCHEMA: u32 = 1;
    /// Oldest supported schema version. Newer versions only add optional fields.
    const OLDEST: u32 = 1;
    /// Fields added after the first version, each with the version that added it.
    const ADDED: &'static [(u32, &'static str)] = &[];
    /// Result of a successful task.
    type Result: Serialize + DeserializeOwned + Bounded;

    /// Returns the secrets that the node may read for the task.
    fn reads(&self) -> Vec<SecretId> {
        Vec::new()
    }

    /// Returns the secrets that the node must deposit and may not read.
    fn deposits(&self) -> Vec<SecretId> {
        Vec::new()
    }
}

/// A task type with the schema versions that an agent supports, as listed in its hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSupport {
    /// Name in the catalog. It is text because an agent may support types that this control plane does not know.
    pub task: String,
    /// Supported schema versions.
    pub schemas: Vec<u32>,
}

/// Reference to a secret. Only a node whose task contains the reference can fetch the secret's bytes, over its channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// The secret's id.
    pub secret_id: SecretId,
    /// SHA-256 of the secret's bytes, 64 lower-case hex digits.
    pub sha256: String,
}

/// Progress of a task; any number of them may precede its end. `text` has at most [`TaskProgress::TEXT_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Current activity, for example `waiting for rke2-server to notify readiness`.
    pub text: String,
    /// Percent done, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent: Option<u8>,
}

impl TaskProgress {
    /// Maximum length of a progress text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 512;
}

/// Outcome of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The task succeeded.
    Succeeded {
        /// JSON of the type's result.
        result: serde_json::Value,
    },
    /// The task failed.
    Failed {
        /// The reason with evidence.
        failure: TaskFailure,
    },
}

/// Why a task failed, with evidence from the node. A node reports it: the control plane treats it as evidence only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// Stable code.
    pub code: Code,
    /// Reason in one sentence; at most [`TaskFailure::MESSAGE_BYTES_MAX`].
    pub message: String,
    /// State of the unit, if the task manages one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<Box<UnitReport>>,
    /// Last lines of the unit's journal, oldest first, at most [`TaskFailure::JOURNAL_LINES_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub journal: Vec<JournalExcerpt>,
}

impl TaskFailure {
    /// Maximum length of a message, in bytes.
    pub const MESSAGE_BYTES_MAX: usize = SENTENCE_BYTES_MAX;
    /// Maximum number of journal lines in a failure.
    pub const JOURNAL_LINES_MAX: usize = 60;

    /// Creates a failure without a unit report or journal lines.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), unit: None, journal: Vec::new() }
    }
}

impl Bounded for TaskProgress {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(Self {
            text: one_line(self.text, Self::TEXT_BYTES_MAX),
            percent: self.percent.map(|percent| percent.min(100)),
        })
    }
}

impl Bounded for TaskFailure {
    fn within_bounds(mut self) -> Result<Self, OutOfBounds> {
        let earlier = self.journal.len().saturating_sub(Self::JOURNAL_LINES_MAX);
        let journal = self.journal.split_off(earlier);
        Ok(Self {
            code: self.code,
            message: one_line(self.message, Self::MESSAGE_BYTES_MAX),
            unit: self.unit.map(|unit| unit.within_bounds().map(Box::new)).transpose()?,
            journal: journal.into_iter().map(Bounded::within_bounds).collect::<Result<_, _>>()?,
        })
    }
}

/// Leaves results unchecked, because their type depends on the task: [`TaskOutcome::checked_for`] checks them.
impl Bounded for TaskOutcome {
    fn within_bounds(self) -> Result<Self, OutOfBounds> {
        Ok(match self {
            Self::Failed { failure } => Self::Failed { failure: failure.within_bounds()? },
            Self::Succeeded { .. } => self,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that parameters with an additional field are refused.
    fn check_unknown_fields_are_refused<T: TaskSpec>(good: serde_json::Value, seen: &mut Vec<TaskType>) {
        assert!(serde_json::from_value::<T>(good.clone()).is_ok(), "{}: {good}", T::TYPE);
        let mut more = good;
        more["also"] = serde_json::json!(1);
        assert!(serde_json::from_value::<T>(more).is_err(), "{}", T::TYPE);
        seen.push(T::TYPE);
    }

    #[test]
    fn unknown_parameters_of_every_general_type_are_refused() {
        use serde_json::json;
        let artifact = json!({ "name": "a", "sha256": "00", "size_bytes": 7 });
        let mut seen = Vec::new();
        check_unknown_fields_are_refused::<Noop>(json!({}), &mut seen);
        check_unknown_fields_are_refused::<Inspect>(json!({}), &mut seen);
        let preflight = json!({ "ports": [6443], "absent_paths": ["/a"], "endangered_paths": [], "free_bytes_min": 1 });
        check_unknown_fields_are_refused::<Preflight>(preflight, &mut seen);
        let residue =
            json!({ "paths": ["/a"], "mount_prefixes": [], "ports": [], "units": [], "process_prefixes": [] });
        check_unknown_fields_are_refused::<Residue>(residue, &mut seen);
        check_unknown_fields_are_refused::<Fix>(json!({ "kind": "inotify" }), &mut seen);
        check_unknown_fields_are_refused::<ArtifactFetch>(json!({ "artifacts": [artifact] }), &mut seen);
        assert!(GENERAL_TASKS.iter().all(|task| seen.contains(&task.task_type)), "{seen:?}");
    }

    #[test]
    fn unknown_parameters_are_refused() {
        assert!(serde_json::from_str::<Noop>(r#"{}"#).is_ok());
        assert!(serde_json::from_str::<Noop>(r#"{"also": 1}"#).is_err());
        let secret = r#"{"secret_id":"0198c0de-7a3b-7c11-9b54-0242ac120002","sha256":"00","value":"x"}"#;
        assert!(serde_json::from_str::<SecretRef>(secret).is_err());
    }
}
