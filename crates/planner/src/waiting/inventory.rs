//! Explains nodes, allocations and tasks.

use gpuaas_model::{
    AllocationId, AllocationState, Connectivity, NextAction, NodeState, OperationId, TaskId, TaskState, TaskType,
    Timestamp, Waiting, WaitingFrom,
};

/// A node's connection, for what waits for the node.
#[derive(Clone, Copy, Debug)]
pub struct NodeLink<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Connection of its agent.
    pub connectivity: Connectivity,
    /// When that last changed.
    pub since: Timestamp,
}

/// Why a node's agent accepts no tasks.
#[derive(Clone, Copy, Debug)]
pub struct AgentProblem<'a> {
    /// The agent's description.
    pub detail: &'a str,
    /// When the control plane first saw it.
    pub since: Timestamp,
}

/// An enrollment string that is neither used nor expired.
#[derive(Clone, Copy, Debug)]
pub struct IssuedEnrollment {
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// The part of a node's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct NodeRow<'a> {
    /// The node's connection.
    pub link: NodeLink<'a>,
    /// State of the node.
    pub state: NodeState,
    /// Why its agent accepts no tasks.
    pub problem: Option<AgentProblem<'a>>,
    /// An unused enrollment string of it.
    pub enrollment: Option<IssuedEnrollment>,
    /// When a tenant left it.
    pub left_at: Option<Timestamp>,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// The part of an allocation's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct AllocationRow<'a> {
    /// Id of the allocation.
    pub id: AllocationId,
    /// Its node.
    pub link: NodeLink<'a>,
    /// State of the allocation.
    pub state: AllocationState,
    /// Reason for the state.
    pub detail: Option<&'a str>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The part of a task's row that explains it.
#[derive(Clone, Copy, Debug)]
pub struct TaskRow<'a> {
    /// Id of the task.
    pub id: TaskId,
    /// Its node.
    pub link: NodeLink<'a>,
    /// Type of the task.
    pub task_type: TaskType,
    /// State of the task.
    pub state: TaskState,
    /// The operation that it serves.
    pub operation: Option<OperationId>,
    /// What its step last reported.
    pub progress: Option<&'a str>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Time after which the agent refuses it.
    pub expires_at: Timestamp,
}

impl NodeLink<'_> {
    /// Explains the wait for the node's connection since `since`; `None` if it is connected.
    fn absence(&self, since: Timestamp) -> Option<Waiting> {
        let name = self.name;
        let seen = match self.connectivity {
            Connectivity::Connected => return None,
            Connectivity::Never => format!("{name} has never connected"),
            Connectivity::Stale | Connectivity::Unreachable => {
                format!("{name} is {} since {}", self.connectivity, self.since)
            }
        };
        let from = match self.connectivity {
            Connectivity::Connected | Connectivity::Stale => WaitingFrom::Node,
            Connectivity::Never | Connectivity::Unreachable => WaitingFrom::Operator,
        };
        let waiting = Waiting::new(format!("{name} to connect"), from, since, NextAction::check_agent(name));
        Some(waiting.with_evidence(Some(&seen)))
    }
}

/// Explains a node that is not connected or cannot be used yet; `None` for a connected node that accepts tasks, and for a retired one.
pub fn node(of: &NodeRow<'_>) -> Option<Waiting> {
    let name = of.link.name;
    match of.state {
        NodeState::Registered => Some(enrollment(of)),
        // An unused string is for another machine, or for this one after a reinstallation.
        NodeState::Enrolled if of.enrollment.is_some() => Some(enrollment(of)),
        NodeState::Enrolled => {
            let since = of.link.since.max(of.created_at);
            let next = NextAction::check_agent(name);
            let silent = || Waiting::new("its agent to report", WaitingFrom::Node, since, next);
            Some(of.link.absence(since).unwrap_or_else(silent))
        }
        NodeState::Active => of.link.absence(of.link.since).or_else(|| {
            let problem = of.problem?;
            let next = NextAction::check_agent(name);
            let waiting = Waiting::new("its agent to accept tasks", WaitingFrom::Operator, problem.since, next);
            Some(waiting.with_evidence(Some(problem.detail)))
        }),
        NodeState::NeedsReimage => {
            let since = of.left_at.unwrap_or(of.link.since);
            let waiting =
                Waiting::new("its machine to be reimaged", WaitingFrom::Operator, since, NextAction::reset_node(name));
            Some(waiting.with_evidence(Some("a tenant had root on the machine")))
        }
        NodeState::Retired => None,
    }
}

/// The enrollment of a node's machine is awaited; an issued string ends it at the latest when it expires.
fn enrollment(of: &NodeRow<'_>) -> Waiting {
    let (what, name) = ("its machine to enroll", of.link.name);
    match of.enrollment {
        Some(issued) => {
            let seen = format!("an enrollment string was issued at {} and is unused", issued.issued_at);
            Waiting::new(what, WaitingFrom::Operator, issued.issued_at, NextAction::run_enrollment(name))
                .with_evidence(Some(&seen))
                .until(Some(issued.expires_at))
        }
        None => {
            let since = of.link.since.max(of.created_at);
            Waiting::new(what, WaitingFrom::Operator, since, NextAction::enroll_node(name))
                .with_evidence(Some("no enrollment string is valid"))
        }
    }
}

/// Explains an allocation that is not usable yet or whose release has not ended; `None` for an active one and for one that ended.
pub fn allocation(of: &AllocationRow<'_>) -> Option<Waiting> {
    let name = of.link.name;
    match of.state {
        AllocationState::Requested | AllocationState::Provisioning => {
            let what = format!("{name} to pass its inspection");
            let absent = of.link.absence(of.created_at);
            let next = NextAction::show_allocation(of.id);
            Some(
                absent.unwrap_or_else(|| {
                    Waiting::new(what, WaitingFrom::Node, of.created_at, next).with_evidence(of.detail)
                }),
            )
        }
        AllocationState::Active | AllocationState::Released | AllocationState::Failed => None,
        AllocationState::Releasing => {
            let next = NextAction::show_allocation(of.id);
            let waiting =
                Waiting::new("the platform to take the node back", WaitingFrom::Platform, of.created_at, next);
            Some(waiting.with_evidence(of.detail))
        }
        AllocationState::ReleaseFailed => {
            let what = format!("{name} to be cleaned");
            let waiting = Waiting::new(what, WaitingFrom::Operator, of.created_at, NextAction::release_again(of.id));
            Some(waiting.with_evidence(of.detail.or(Some("something is left on the node"))))
        }
    }
}

/// Explains a task that has not ended.
pub fn task(of: &TaskRow<'_>) -> Option<Waiting> {
    match of.state {
        TaskState::Dispatched => {
            let next = of.operation.map_or_else(|| NextAction::show_task(of.id), NextAction::watch);
            let what = format!("{} to {}", of.link.name, of.task_type.purpose());
            let waiting = of.link.absence(of.created_at).unwrap_or_else(|| {
                Waiting::new(what, WaitingFrom::Node, of.created_at, next).with_evidence(of.progress)
            });
            Some(waiting.until(Some(of.expires_at)))
        }
        TaskState::Succeeded
        | TaskState::Failed
        | TaskState::Expired
        | TaskState::Cancelled
        | TaskState::Interrupted => None,
    }
}
