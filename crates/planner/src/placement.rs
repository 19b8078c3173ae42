//! Checks of placement that hold for every app.

use gpuaas_model::{
    AllocationId, AllocationState, Code, Connectivity, NodeId, NodeState, ProjectId, Reason, Timestamp,
};
use gpuaas_wire::task::TaskSupport;

use crate::{app::Manifest, view::NodeView};

/// An allocation that somebody would place a member on.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub allocation: AllocationId,
    /// Whose.
    pub project: ProjectId,
    /// Where it is in its life.
    pub state: AllocationState,
    /// Its node.
    pub node: NodeView,
    /// Where its node is in its life.
    pub node_state: NodeState,
    /// Whether its node can be reached.
    pub connectivity: Connectivity,
    /// Since when.
    pub connectivity_since: Timestamp,
    /// What its node's agent can do.
    pub support: Vec<TaskSupport>,
    /// Why its node's agent takes no tasks, with the code; absent where it takes them.
    pub problem: Option<(Code, String)>,
    /// The name of the workload that uses it.
    pub used_by: Option<String>,
}

/// A member to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The app's own word for its part.
    pub component_key: String,
    /// Counts from 1 within the component.
    pub ordinal: u32,
    /// Its allocation.
    pub allocation: AllocationId,
    /// Its node.
    pub node: NodeId,
}

/// Every reason why nothing can be placed on `candidate`, told about `field`.
pub fn unusable(field: &str, candidate: &Candidate, manifest: &Manifest) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut refuse = |code, detail: String, next: &str| {
        reasons.push(Reason { field: field.to_owned(), code, detail, next: Some(next.to_owned()) });
    };
    let node = &candidate.node.name;
    if candidate.state != AllocationState::Active {
        refuse(
            Code::AllocationInactive,
            format!("the allocation of {node} is {}", candidate.state),
            "wait until it is active, or choose another",
        );
    }
    // A node's own state says nothing more about an allocation that is over.
    if candidate.state == AllocationState::Active && candidate.node_state != NodeState::Active {
        refuse(
            Code::AllocationInactive,
            format!("{node} is {}", candidate.node_state),
            "choose another, or ask an operator to put the node back into use",
        );
    }
    // Nor does whether it can be reached: a node that was given back is cut off.
    let is_over = match candidate.state {
        AllocationState::Requested | AllocationState::Provisioning | AllocationState::Active => false,
        AllocationState::Releasing
        | AllocationState::Released
        | AllocationState::Failed
        | AllocationState::ReleaseFailed => true,
    };
    if candidate.connectivity != Connectivity::Connected && !is_over {
        refuse(
            Code::AllocationUnreachable,
            format!("{node} has been {} since {}", candidate.connectivity, candidate.connectivity_since),
            "choose another, or see why its agent does not connect: gpuaas node show",
        );
    }
    if let Some((code, detail)) = candidate.problem.as_ref().filter(|_| !is_over) {
        refuse(
            *code,
            format!("the agent of {node} takes no tasks: {detail}"),
            "choose another, or ask an operator to enroll the node again",
        );
    }
    if let Some(workload) = &candidate.used_by {
        refuse(
            Code::AllocationInUse,
            format!("{node} is already used by workload {workload}"),
            "choose another, or remove it there",
        );
    }
    let missing: Vec<&str> = manifest
        .tasks
        .iter()
        .filter(|(task, schema)| {
            !candidate.support.iter().any(|known| known.task == task.as_str() && known.schemas.contains(schema))
        })
        .map(|(task, _)| task.as_str())
        .collect();
    if candidate.connectivity == Connectivity::Connected && !missing.is_empty() {
        refuse(
            Code::AgentTooOld,
            format!("the agent of {node} does not know {}", missing.join(", ")),
            "upgrade the agent of that node",
        );
    }
    reasons
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
