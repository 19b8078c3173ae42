//! Comparisons of workloads with what was observed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a workload deviates from its desired state. It agrees if `differences` and `unknown` are empty.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkloadDiff {
    /// Id of the workload.
    pub workload: String,
    /// Name of the workload.
    pub workload_name: String,
    /// State of the workload.
    #[schema(value_type = crate::schema::Lifecycle)]
    pub lifecycle: String,
    /// Id of the operation that was under way.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operation: Option<String>,
    /// Time of the comparison.
    #[schema(format = DateTime)]
    pub compared_at: String,
    /// The differences.
    pub differences: Vec<Difference>,
    /// What could not be asked. It is neither a difference nor the absence of one.
    pub unknown: Vec<NotKnown>,
    /// What no comparison looks at, one sentence each.
    pub not_compared: Vec<String>,
}

/// A deviation from the desired state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Name of the member. Absent for the workload as a whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// What deviates, for example `state` or `labels.rack`.
    pub field: String,
    /// Desired value.
    pub desired: String,
    /// Observed value.
    pub observed: String,
    /// Time since which it deviates, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub since: Option<String>,
    /// Next action.
    pub next: String,
    /// Command that carries out the next action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

/// Differences that the platform has found by itself, and what it does about them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Drift {
    /// The differences, each with its next action.
    pub differences: Vec<Difference>,
    /// Time of the next reconciliation by the platform. Absent while one runs, and if none is due.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub reconcile_at: Option<String>,
    /// Times at which the platform started a reconciliation within the last hour that it knows of, oldest first.
    #[serde(default)]
    pub attempts: Vec<String>,
}

/// Something that could not be asked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NotKnown {
    /// Name of the member. Absent for the workload as a whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// What is not known.
    pub what: String,
    /// Reason, in one sentence.
    pub why: String,
    /// Next action.
    pub next: String,
    /// Command that carries out the next action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}
