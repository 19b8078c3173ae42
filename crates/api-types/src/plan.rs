//! Previews of requests, and placement options.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Allocation, ProblemReason};

/// Preview of a request. The server changed nothing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// Kind of the operation, for example `deploy`.
    #[schema(value_type = crate::schema::OperationKind)]
    pub kind: String,
    /// Members that the operation would create, or remove for a decommission.
    pub members: Vec<PlannedMember>,
    /// Steps of the operation, in an order in which they could run one after the other.
    pub steps: Vec<PlannedStep>,
    /// Guarantees that the platform gives for the app, one sentence each.
    pub promises: Vec<String>,
    /// Limits of those guarantees, one sentence each.
    pub not_promised: Vec<String>,
    /// Digest of the plan. A request with this `plan_digest` is refused if another plan would run.
    #[serde(default)]
    pub digest: String,
    /// What the operation interrupts, one sentence each.
    #[serde(default)]
    pub interrupts: Vec<String>,
}

/// A member that an operation would create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedMember {
    /// Name of the member, for example `agent-2`.
    pub name: String,
    /// Id of the allocation. Absent for a member on an external machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allocation: Option<String>,
    /// Id of the node. Absent for a member on an external machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// Name of the node or of the external machine.
    pub node_name: String,
}

/// A step of a previewed operation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedStep {
    /// Name of the step, unique within the operation.
    pub key: String,
    /// Phase to which the step belongs, one of the app's own phases.
    pub phase: String,
    /// Names of the steps that must succeed first.
    pub needs: Vec<String>,
    /// Names of the steps that must end first, whatever their result.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub after: Vec<String>,
    /// Time limit of one attempt, in milliseconds.
    pub deadline_ms: u64,
    /// Name of the member that the step is for. Absent for the workload as a whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// Name of the node or external machine of that member.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_name: Option<String>,
    /// What the step does, in words.
    #[serde(default)]
    pub does: String,
    /// What the step interrupts, in words. Absent if it interrupts nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interrupts: Option<String>,
}

/// An allocation as a placement for an app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlacementOption {
    /// The allocation.
    pub allocation: Allocation,
    /// True if a member can be placed there now.
    pub usable: bool,
    /// Every reason why it cannot.
    pub reasons: Vec<ProblemReason>,
}
