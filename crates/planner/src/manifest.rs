//! The description of an app in the catalog.

use gpuaas_model::{OperationKind, TaskType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Description of an app in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Short name for commands.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// Description in one sentence.
    pub summary: String,
    /// JSON Schema of the placement of a new workload. A schema refers to nothing outside; `examples` has a valid value.
    pub placement_schema: Value,
    /// JSON Schema of the placement of additional members.
    pub added_members_schema: Value,
    /// JSON Schema of the settings that a tenant can make.
    pub config_schema: Value,
    /// Properties that the platform promises.
    pub promises: Vec<String>,
    /// Properties that the platform does not promise.
    pub not_promised: Vec<String>,
    /// Phases in their order.
    pub phases: Vec<String>,
    /// Task types that the app needs, each with the oldest version of its parameters that suffices.
    pub tasks: Vec<(TaskType, u32)>,
    /// Operations with the schemas of their parameters.
    pub operations: Vec<OperationSpec>,
    /// Files that a release must contain, by the release's own names.
    pub release_files: Vec<String>,
    /// Name of the release's file of checksums.
    pub release_sums: String,
}

/// A kind of operation of an app, with the parameters that it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationSpec {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// JSON Schema of its parameters: an object without further properties.
    pub parameters_schema: Value,
    /// False if the app describes the operation but cannot plan it yet.
    pub is_available: bool,
}

impl OperationSpec {
    /// Returns the description of an operation without parameters.
    pub fn without_parameters(kind: OperationKind) -> Self {
        let parameters_schema = json!({ "type": "object", "additionalProperties": false });
        Self { kind, parameters_schema, is_available: true }
    }
}
