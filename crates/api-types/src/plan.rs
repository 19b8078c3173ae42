//! What would be done, and where something could go.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Allocation, ProblemReason};

/// What an accepted request would do. Nothing was touched.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// What the operation would be for.
    pub kind: String,
    /// The members it would make.
    pub members: Vec<PlannedMember>,
    /// Its steps, in an order in which they could run one by one.
    pub steps: Vec<PlannedStep>,
    /// What the platform promises of the app.
    pub promises: Vec<String>,
    /// What it does not.
    pub not_promised: Vec<String>,
}

/// A member that would be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedMember {
    /// For example `agent-2`.
    pub name: String,
    /// The id of its allocation.
    pub allocation: String,
    /// The id of its node.
    pub node: String,
    /// The name of its node.
    pub node_name: String,
}

/// A step that would be carried out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedStep {
    /// Its name inside the operation.
    pub key: String,
    /// The app's phase that it belongs to.
    pub phase: String,
    /// Steps that must have succeeded before.
    pub needs: Vec<String>,
    /// Longest time of one attempt, in milliseconds.
    pub deadline_ms: u64,
}

/// An allocation as a place for an app.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlacementOption {
    /// The allocation.
    pub allocation: Allocation,
    /// Whether something can be placed there now.
    pub usable: bool,
    /// Every reason why not.
    pub reasons: Vec<ProblemReason>,
}
