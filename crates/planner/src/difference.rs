//! Desired against observed: how the members of a workload deviate from what its lifecycle wants. What only the cluster can show is the
//! app's to compare.

use gpuaas_model::{Connectivity, Health, Lifecycle, MemberId, MemberState, NextAction, OperationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::view::{MemberView, WorkloadView};

/// Longest observed text in a difference, in bytes: it may come from a tenant's cluster.
pub const OBSERVED_BYTES_MAX: usize = 256;
/// Fault of a member whose node is unreachable. The difference of the node says it already.
const NODE_UNREACHABLE: &str = "node_unreachable";

/// A deviation from the desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the member; `None` for the workload as a whole.
    pub member: Option<String>,
    /// What deviates, for example `state` or `labels.rack`.
    pub field: String,
    /// The desired value.
    pub desired: String,
    /// The observed value.
    pub observed: String,
    /// Time since which it deviates, if it is known.
    pub since: Option<Timestamp>,
    /// What a person can do.
    pub action: NextAction,
}

/// Something that could not be asked. It is neither a difference nor the absence of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Name of the member; `None` for the workload as a whole.
    pub member: Option<String>,
    /// What is not known.
    pub what: String,
    /// Why it is not known.
    pub why: String,
    /// What a person can do.
    pub action: NextAction,
}

/// The connection to the node of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSight {
    /// The member.
    pub member: MemberId,
    /// Present connectivity of its node.
    pub connectivity: Connectivity,
    /// Time since which it has this connectivity.
    pub since: Timestamp,
}

/// The state to which a lifecycle leads its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Desired {
    /// In service, also drained if a person asked for that.
    InService,
    Stopped,
    Removed,
}

/// Whether the cluster of a workload is expected to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterExpected {
    /// It serves.
    Yes,
    /// It is not wanted, so its silence is no deviation.
    No,
    /// It is on its way there, or did not get there.
    NotYet,
}

impl ClusterExpected {
    /// Returns what this lifecycle expects.
    pub const fn of(lifecycle: Lifecycle) -> Self {
        match lifecycle {
            Lifecycle::Running => Self::Yes,
            Lifecycle::Requested
            | Lifecycle::Stopped
            | Lifecycle::Decommissioning
            | Lifecycle::Decommissioned
            | Lifecycle::Cancelled => Self::No,
            Lifecycle::Deploying | Lifecycle::Stopping | Lifecycle::Starting | Lifecycle::Failed => Self::NotYet,
        }
    }
}

/// Returns how members and their nodes deviate, and what is not known because a node cannot be reached. `open` is the operation that is
/// under way.
pub fn of_members(
    workload: &WorkloadView,
    nodes: &[NodeSight],
    open: Option<OperationId>,
) -> (Vec<Difference>, Vec<Unknown>) {
    let (mut differences, mut unknown) = (Vec::new(), Vec::new());
    let desired = desired(workload.lifecycle);
    for member in workload.members.iter().filter(|member| member.state != MemberState::Removed) {
        differences.extend(state(member, desired, workload, open));
        differences.extend(health(member, workload));
        let sight = nodes.iter().find(|sight| sight.member == member.id);
        if let Some(sight) = sight.filter(|sight| sight.connectivity != Connectivity::Connected) {
            differences.push(disconnected(member, sight));
            unknown.push(unseen_services(member, sight, workload));
        }
    }
    (differences, unknown)
}

const fn desired(lifecycle: Lifecycle) -> Desired {
    match lifecycle {
        Lifecycle::Requested
        | Lifecycle::Deploying
        | Lifecycle::Running
        | Lifecycle::Starting
        | Lifecycle::Failed
        | Lifecycle::Cancelled => Desired::InService,
        Lifecycle::Stopping | Lifecycle::Stopped => Desired::Stopped,
        Lifecycle::Decommissioning | Lifecycle::Decommissioned => Desired::Removed,
    }
}

/// Returns how the member's state deviates.
fn state(
    member: &MemberView,
    desired: Desired,
    workload: &WorkloadView,
    open: Option<OperationId>,
) -> Option<Difference> {
    let (wanted, since) = match (desired, &member.state) {
        (_, MemberState::Removed)
        | (Desired::InService, MemberState::Ready { .. } | MemberState::Drained { .. })
        | (Desired::Stopped, MemberState::Stopped { .. }) => return None,
        (Desired::InService, MemberState::Draining { since }) => ("drained", Some(*since)),
        (Desired::InService, MemberState::Removing { since }) => ("removed", Some(*since)),
        (Desired::InService, MemberState::Pending) => ("ready", None),
        (
            Desired::InService,
            MemberState::Preparing { since }
            | MemberState::Bootstrapping { since }
            | MemberState::Joining { since }
            | MemberState::Stopped { since }
            | MemberState::Failed { since, .. },
        ) => ("ready", Some(*since)),
        (Desired::Stopped, state) => ("stopped", since_of(state)),
        (Desired::Removed, state) => ("removed", since_of(state)),
    };
    Some(Difference {
        member: Some(member.name.clone()),
        field: "state".to_owned(),
        desired: wanted.to_owned(),
        observed: member.state.name().to_string(),
        since,
        action: open.map_or_else(|| settle(member, workload), NextAction::watch),
    })
}

const fn since_of(state: &MemberState) -> Option<Timestamp> {
    match state {
        MemberState::Pending | MemberState::Removed => None,
        MemberState::Preparing { since }
        | MemberState::Bootstrapping { since }
        | MemberState::Joining { since }
        | MemberState::Ready { since }
        | MemberState::Stopped { since }
        | MemberState::Draining { since }
        | MemberState::Drained { since }
        | MemberState::Removing { since }
        | MemberState::Failed { since, .. } => Some(*since),
    }
}

/// Returns what brings the member into the desired state, when no operation is under way: what its lifecycle allows.
fn settle(member: &MemberView, workload: &WorkloadView) -> NextAction {
    let name = &workload.name;
    match (workload.lifecycle, &member.state) {
        (Lifecycle::Stopped, _) => NextAction::start(name),
        (Lifecycle::Decommissioning, _) => NextAction::decommission("its removal has not ended", name),
        (Lifecycle::Decommissioned, _) => NextAction::show_node("check what is left there", &member.machine.name),
        (Lifecycle::Cancelled, _) => NextAction::resume_or_remove(name),
        (Lifecycle::Running | Lifecycle::Failed, MemberState::Failed { fault, .. }) if fault.next.command.is_some() => {
            fault.next.clone()
        }
        // Its newest operation may have succeeded without it, so there may be nothing to resume.
        (
            Lifecycle::Running,
            MemberState::Pending
            | MemberState::Preparing { .. }
            | MemberState::Bootstrapping { .. }
            | MemberState::Joining { .. }
            | MemberState::Stopped { .. }
            | MemberState::Failed { .. },
        ) => NextAction::repair_member("it does not serve its role", name, &member.name),
        (Lifecycle::Running, MemberState::Draining { .. }) => NextAction::uncordon_or_resume(name, &member.name),
        (
            Lifecycle::Requested
            | Lifecycle::Deploying
            | Lifecycle::Running
            | Lifecycle::Stopping
            | Lifecycle::Starting
            | Lifecycle::Failed,
            _,
        ) => NextAction::resume("its last operation did not bring it there", name),
    }
}

/// Returns how the health of a member in service deviates.
fn health(member: &MemberView, workload: &WorkloadView) -> Option<Difference> {
    if !matches!(member.state, MemberState::Ready { .. } | MemberState::Drained { .. }) {
        return None;
    }
    match member.health {
        Health::Healthy | Health::Progressing | Health::None => return None,
        Health::Degraded | Health::Failed => {}
    }
    let fault = member.fault.as_ref();
    if fault.is_some_and(|fault| fault.code == NODE_UNREACHABLE) {
        return None;
    }
    let why = fault.map(|fault| format!(": {} ({})", fault.summary, fault.code)).unwrap_or_default();
    let read_log = || NextAction::read_log(&workload.name, &member.name);
    Some(Difference {
        member: Some(member.name.clone()),
        field: "health".to_owned(),
        desired: Health::Healthy.to_string(),
        observed: format!("{}{why}", member.health),
        since: fault.and_then(|fault| fault.evidence.as_ref()).and_then(|evidence| evidence.at),
        action: fault.map_or_else(read_log, |fault| fault.next.clone()),
    })
}

fn disconnected(member: &MemberView, sight: &NodeSight) -> Difference {
    let node = &member.machine.name;
    Difference {
        member: Some(member.name.clone()),
        field: "node".to_owned(),
        desired: Connectivity::Connected.to_string(),
        observed: sight.connectivity.to_string(),
        since: Some(sight.since),
        action: NextAction::show_node("check whether the node and its agent run", node),
    }
}

fn unseen_services(member: &MemberView, sight: &NodeSight, workload: &WorkloadView) -> Unknown {
    let node = &member.machine.name;
    Unknown {
        member: Some(member.name.clone()),
        what: format!("whether its services run on {node}"),
        why: format!("{node} has been {} since {}", sight.connectivity, sight.since),
        action: NextAction::compare_again(&format!("when {node} is connected"), &workload.name),
    }
}

#[cfg(test)]
mod tests;
