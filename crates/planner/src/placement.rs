//! Checks of placement that apply to every app.

use std::collections::BTreeSet;

use gpuaas_model::{
    AllocationId, AllocationState, Code, Connectivity, NodeId, NodeState, ProjectId, Reason, Timestamp,
};
use gpuaas_wire::task::TaskSupport;

use crate::{manifest::Manifest, view::NodeView};

/// An allocation on which a member may be placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Id of the allocation.
    pub allocation: AllocationId,
    /// Project that owns it.
    pub project: ProjectId,
    /// State in the allocation's lifecycle.
    pub state: AllocationState,
    /// Node of the allocation.
    pub node: NodeView,
    /// State in the node's lifecycle.
    pub node_state: NodeState,
    /// Present connectivity of the node.
    pub connectivity: Connectivity,
    /// Time since which it has this connectivity.
    pub connectivity_since: Timestamp,
    /// Task types that its node's agent supports.
    pub support: Vec<TaskSupport>,
    /// Code and reason why its node's agent takes no tasks; `None` if it takes tasks.
    pub problem: Option<(Code, String)>,
    /// The checks whose findings block a deployment onto its node, by name.
    pub blocking: BTreeSet<String>,
    /// Name of the workload that uses the allocation.
    pub used_by: Option<String>,
}

/// A planned member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Key of its component, defined by the app.
    pub component_key: String,
    /// Number within the component, from 1.
    pub ordinal: u32,
    /// Allocation of the member.
    pub allocation: AllocationId,
    /// Node of the member.
    pub node: NodeId,
}

/// Returns every reason why nothing can be placed on `candidate`; each reason names `field`.
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
    // The node's own state adds nothing for an allocation that is over.
    if candidate.state == AllocationState::Active && candidate.node_state != NodeState::Active {
        refuse(
            Code::AllocationInactive,
            format!("{node} is {}", candidate.node_state),
            "choose another, or ask an operator to put the node back into use",
        );
    }
    // Neither does its connectivity: a node that was given back is isolated.
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
            &format!("choose another, or see why its agent does not connect: gpuaas node show {node}"),
        );
    }
    if let Some((code, detail)) = candidate.problem.as_ref().filter(|_| !is_over) {
        refuse(
            *code,
            format!("the agent of {node} takes no tasks: {detail}"),
            "choose another, or ask an operator to enroll the node again",
        );
    }
    if !candidate.blocking.is_empty() && !is_over {
        let checks: Vec<&str> = candidate.blocking.iter().map(String::as_str).collect();
        refuse(
            Code::AllocationBlocked,
            format!("{node} has findings that block a deployment: {}", checks.join(", ")),
            &format!(
                "choose another, or ask an operator to do what gpuaas node show {node} advises, then to inspect the node again: \
                 gpuaas node inspect {node}"
            ),
        );
    }
    if let Some(workload) = &candidate.used_by {
        refuse(
            Code::AllocationInUse,
            format!("{node} is already used by workload {workload}"),
            &format!("choose another node, or end that workload: gpuaas workload decommission {workload}"),
        );
    }
    let missing: Vec<&str> = manifest
        .tasks
        .iter()
        .filter(|(task, oldest)| {
            let suffices = |schemas: &[u32]| schemas.iter().any(|schema| schema >= oldest);
            !candidate.support.iter().any(|known| known.task == task.as_str() && suffices(&known.schemas))
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
mod tests;
