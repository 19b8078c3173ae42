//! Decides access to a node: this project holds this node now, through this allocation, for this workload.
//!
//! Guarantees: every effect on a node and every read from one takes a [`NodeAccess`], and only this module creates one. It is decided from
//! the rows of one transaction, is bound to the node's enrollment at that moment, and is decided again before later use.
//!
//! Deliberately absent: the permissions of a caller's role (`caller`), and connections (`channel`), which end with the node's enrollment.

use gpuaas_model::{
    AllocationId, AllocationState, Code, EnrolledNode, Lifecycle, MemberId, MemberPlace, MemberState, Name, NodeId,
    NodeState, Permission, ProjectId, WorkloadId,
};
use gpuaas_store::{
    AllocationRecord, MemberRecord, NodeProblem, NodeRecord, Reader, StoreError, TaskRecord, WorkloadRecord,
};
use gpuaas_wire::task::TaskSupport;

use crate::{caller::Caller, error::CommandError};

/// A project's right to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The project.
    pub project: ProjectId,
    /// The allocation through which the project holds the node.
    pub allocation: AllocationId,
    /// The workload and member for which the node is accessed; `None` during the inspection of a new allocation.
    pub member: Option<(WorkloadId, MemberId)>,
}

/// The right to access one node in its present enrollment, as decided a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAccess {
    node: EnrolledNode,
    name: Name,
    support: Vec<TaskSupport>,
    holding: Option<Holding>,
    problem: Option<NodeProblem>,
}

impl NodeAccess {
    /// The node and the enrollment in which it may be accessed.
    pub fn node(&self) -> EnrolledNode {
        self.node
    }

    /// The node's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The project, allocation and member for which the node is accessed; `None` for access by the platform itself.
    pub fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    /// The task types and versions that the node's agent supports.
    pub(crate) fn support(&self) -> &[TaskSupport] {
        &self.support
    }

    /// Refuses a node whose agent takes no tasks. Journals, tunnels and unit reports of such a node keep working.
    pub(crate) fn check_takes_tasks(&self) -> Result<(), TakesNoTasks> {
        check_takes_tasks(&self.name, self.problem.as_ref())
    }

    pub(crate) fn workload(&self) -> Option<WorkloadId> {
        self.holding.and_then(|holding| holding.member).map(|(workload, _)| workload)
    }

    fn of(node: &NodeRecord, holding: Option<Holding>) -> Self {
        let enrolled = EnrolledNode { node: node.id, epoch: node.epoch };
        let problem = node.agent_problem.clone();
        Self { node: enrolled, name: node.name.clone(), support: node.support.clone(), holding, problem }
    }
}

/// Refuses a node whose agent takes no tasks.
pub(crate) fn check_takes_tasks(name: &Name, problem: Option<&NodeProblem>) -> Result<(), TakesNoTasks> {
    match problem {
        None => Ok(()),
        Some(NodeProblem { code, detail, .. }) => {
            Err(TakesNoTasks { node: name.clone(), code: *code, detail: detail.clone() })
        }
    }
}

/// The node's agent takes no tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent of {node} takes no tasks: {detail}")]
pub struct TakesNoTasks {
    node: Name,
    /// The problem of the agent.
    pub(crate) code: Code,
    detail: String,
}

impl From<TakesNoTasks> for CommandError {
    fn from(refused: TakesNoTasks) -> Self {
        let next = reenroll_hint(&refused.node);
        Self::new(refused.code, refused.to_string()).then(next)
    }
}

/// The next action for a node whose agent takes no tasks.
pub fn reenroll_hint(node: &Name) -> String {
    format!("enroll it again with the command that this prints: gpuaas node enroll {node}")
}

/// The node may not be accessed for this purpose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotHeld(String);

/// The reasons for which access to a node fails.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The rows do not allow it.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// The rows could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<NotHeld> for CommandError {
    fn from(refused: NotHeld) -> Self {
        Self::new(Code::NodeNotAllocated, refused.to_string())
            .then("see which nodes the project holds: gpuaas allocation list")
    }
}

impl From<AccessError> for CommandError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NotHeld(refused) => refused.into(),
            AccessError::Store(error) => error.into(),
        }
    }
}

/// Decides whether the member's project holds the node now, through the member's allocation, for the member's workload. No other code
/// decides this.
pub(crate) fn decide(
    member: &MemberRecord,
    workload: &WorkloadRecord,
    allocation: &AllocationRecord,
    node: &NodeRecord,
) -> Result<NodeAccess, NotHeld> {
    let refuse = |why: String| Err(NotHeld(format!("{} of {}: {why}", member.name(), workload.name)));
    if member.workload != workload.id || workload.lifecycle == Lifecycle::Decommissioned {
        return refuse(format!("the workload is {}", workload.lifecycle));
    }
    if member.state == MemberState::Removed {
        return refuse("the member was removed".to_owned());
    }
    if Some(allocation.id) != member.place.allocation() || allocation.project != workload.project {
        return refuse("its allocation belongs to another project".to_owned());
    }
    if Some(node.id) != member.place.node() || allocation.node != node.id {
        return refuse("its allocation is for another node".to_owned());
    }
    if allocation.state != AllocationState::Active {
        return refuse(format!("its allocation is {}", allocation.state));
    }
    check_has_identity(node)?;
    let holding =
        Holding { project: workload.project, allocation: allocation.id, member: Some((workload.id, member.id)) };
    Ok(NodeAccess::of(node, Some(holding)))
}

/// Refuses a node without a valid identity: one that is registered, needs a reimage, or is retired.
fn check_has_identity(node: &NodeRecord) -> Result<(), NotHeld> {
    match node.state {
        NodeState::Enrolled | NodeState::Active => Ok(()),
        NodeState::Registered | NodeState::NeedsReimage | NodeState::Retired => {
            Err(NotHeld(format!("{} is {}", node.name, node.state)))
        }
    }
}

/// Decides access for a member of a workload.
pub(crate) async fn for_member(
    reader: &mut Reader,
    workload: &WorkloadRecord,
    member: &MemberRecord,
) -> Result<NodeAccess, AccessError> {
    let MemberPlace::Allocation { allocation, node } = member.place else {
        let why = format!("{} of {} is on a machine that takes no tasks", member.name(), workload.name);
        return Err(NotHeld(why).into());
    };
    let allocation = reader.allocation(allocation).await?;
    let node = reader.node(node).await?;
    Ok(decide(member, workload, &allocation, &node)?)
}

/// Decides access for the member of `workload` on the node.
pub(crate) async fn for_workload_on(
    reader: &mut Reader,
    workload: WorkloadId,
    node: NodeId,
) -> Result<NodeAccess, AccessError> {
    let members = reader.members_on(node).await?;
    let member = members.iter().find(|member| member.workload == workload);
    let member = member.ok_or_else(|| NotHeld("the workload has no member on this node".to_owned()))?;
    let workload = reader.workload(workload).await?;
    for_member(reader, &workload, member).await
}

/// Decides access for the inspection that makes an allocation active.
pub(crate) async fn for_allocation(
    reader: &mut Reader,
    allocation: &AllocationRecord,
) -> Result<NodeAccess, AccessError> {
    let node = reader.node(allocation.node).await?;
    if allocation.state != AllocationState::Provisioning {
        return Err(NotHeld(format!("the allocation of {} is {}", node.name, allocation.state)).into());
    }
    check_has_identity(&node)?;
    let holding = Holding { project: allocation.project, allocation: allocation.id, member: None };
    Ok(NodeAccess::of(&node, Some(holding)))
}

/// Decides access for an operator of the platform. Needs `NodesWrite`.
pub(crate) async fn for_operator(
    reader: &mut Reader,
    caller: &Caller,
    node: NodeId,
) -> Result<NodeAccess, CommandError> {
    caller.require(Permission::NodesWrite)?;
    let node = reader.node(node).await?;
    check_has_identity(&node).map_err(|_| {
        let NodeRecord { name, state, .. } = &node;
        let next = match state {
            NodeState::Registered => format!("enroll it: gpuaas node enroll {name}"),
            _ => format!("see its state and what to do: gpuaas node show {name}"),
        };
        CommandError::new(Code::StateConflict, format!("{name} cannot answer: its state is {state}")).then(next)
    })?;
    Ok(NodeAccess::of(&node, None))
}

/// Decides access for the platform's own inspection of a node, regardless of its allocation.
pub(crate) async fn for_platform(reader: &mut Reader, node: NodeId) -> Result<NodeAccess, AccessError> {
    let node = reader.node(node).await?;
    check_has_identity(&node)?;
    Ok(NodeAccess::of(&node, None))
}

/// Decides access for a task that was signed earlier, in the enrollment for which it was signed.
pub(crate) async fn for_task(reader: &mut Reader, task: &TaskRecord) -> Result<NodeAccess, AccessError> {
    let access = match (task.workload, task.allocation) {
        (Some(workload), _) => for_workload_on(reader, workload, task.node).await?,
        (None, Some(allocation)) => {
            let allocation = reader.allocation(allocation).await?;
            for_allocation(reader, &allocation).await?
        }
        (None, None) => for_platform(reader, task.node).await?,
    };
    if access.node.epoch != task.epoch {
        return Err(NotHeld(format!("{} has enrolled again since the task was signed", access.name)).into());
    }
    if task.allocation.is_some() && task.allocation != access.holding.map(|holding| holding.allocation) {
        return Err(NotHeld(format!("{} is held through another allocation now", access.name)).into());
    }
    Ok(access)
}

/// Decides an existing access again. Refuses if the node's enrollment or the holding changed.
pub(crate) async fn revalidate(reader: &mut Reader, access: &NodeAccess) -> Result<NodeAccess, AccessError> {
    let now = match access.holding {
        Some(Holding { member: Some((workload, member)), .. }) => {
            let (workload, member) = (reader.workload(workload).await?, reader.member(member).await?);
            for_member(reader, &workload, &member).await?
        }
        Some(Holding { allocation, member: None, .. }) => {
            let allocation = reader.allocation(allocation).await?;
            for_allocation(reader, &allocation).await?
        }
        None => for_platform(reader, access.node.node).await?,
    };
    if now.node != access.node || now.holding != access.holding {
        return Err(NotHeld(format!("the enrollment or the allocation of {} has changed", access.name)).into());
    }
    Ok(now)
}

/// A node that a caller may see.
#[derive(Clone, Debug)]
pub struct VisibleNode(NodeRecord);

impl VisibleNode {
    /// The node's row.
    pub fn record(&self) -> &NodeRecord {
        &self.0
    }

    /// Wraps a node for a caller with `PlatformRead`; refuses others.
    pub fn of_platform(caller: &Caller, node: NodeRecord) -> Result<Self, CommandError> {
        caller.require(Permission::PlatformRead)?;
        Ok(Self(node))
    }

    /// Unwraps the node's row.
    pub fn into_record(self) -> NodeRecord {
        self.0
    }
}

/// Returns the node if the caller may see it: its project holds it now, or the caller has `PlatformRead`. For everyone else it looks
/// absent: `not_found` with the requested name or id.
pub async fn visible_node(
    reader: &mut Reader,
    caller: &Caller,
    node: NodeRecord,
    requested: &str,
) -> Result<VisibleNode, CommandError> {
    if caller.principal.may(Permission::PlatformRead) {
        return Ok(VisibleNode(node));
    }
    let held = reader.open_allocation_of(node.id).await?;
    let is_holder = held.is_some_and(|held| held.state.holds_node() && caller.principal.project == Some(held.project));
    if is_holder { Ok(VisibleNode(node)) } else { Err(CommandError::not_found("node", requested)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_has_its_own_code_and_a_next_step() {
        use gpuaas_model::Coded;
        let refused = CommandError::from(NotHeld("unit-1 of train: its allocation is released".to_owned()));
        assert_eq!(refused.code(), Code::NodeNotAllocated);
        assert!(refused.next().is_some());
    }
}
