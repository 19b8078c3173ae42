//! A task type without its Rust types, as the control plane uses it.

use gpuaas_model::TaskType;
use serde_json::Value;

use super::{
    ArtifactFetch, Fix, Inspect, NamedSecrets, Noop, Preflight, Residue, TaskSpec, result::checked_result,
    secrets::named_secrets,
};

/// The task types that belong to no app. Every app defines its own in addition.
pub const GENERAL_TASKS: &[TaskDefinition] = &[
    TaskDefinition::of::<Noop>(),
    TaskDefinition::of::<Inspect>(),
    TaskDefinition::of::<Preflight>(),
    TaskDefinition::of::<Residue>(),
    TaskDefinition::of::<Fix>(),
    TaskDefinition::of::<ArtifactFetch>(),
];

/// What the control plane knows of a task type.
#[derive(Clone, Copy, Debug)]
pub struct TaskDefinition {
    /// Name of the type in the catalog.
    pub task_type: TaskType,
    /// Newest schema version of the parameters.
    pub newest: u32,
    /// Fields added after the first version, each with the version that added it.
    pub added: &'static [(u32, &'static str)],
    /// Returns the secrets that a task with these parameters names; none if the parameters do not match the task type.
    pub named_secrets: fn(&Value) -> NamedSecrets,
    pub(super) checked_result: fn(Value) -> Result<Value, String>,
}

impl TaskDefinition {
    /// Returns the definition of a task type.
    pub const fn of<T: TaskSpec>() -> Self {
        Self {
            task_type: T::TYPE,
            newest: T::SCHEMA,
            added: T::ADDED,
            named_secrets: named_secrets::<T>,
            checked_result: checked_result::<T>,
        }
    }
}
