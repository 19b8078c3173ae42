//! Platform tasks, each within a request: sent in the background, with their end mapped to the response.

use std::sync::Arc;

use gpuaas_model::{Code, Connectivity, Name, NodeState};
use gpuaas_store::NodeRecord;
use gpuaas_wire::task::TaskFailure;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    dispatch::{Outgoing, TaskEnd},
    effects::ProgressSink,
    engine::Engine,
    error::CommandError,
    ownership::{check_takes_tasks, reenroll_hint},
};

/// Runs the work in a background task and returns its result, so that a client that disconnects leaves no task without an end.
pub(super) async fn run_in_background<T: Send + 'static>(
    engine: &Engine,
    name: &'static str,
    work: impl Future<Output = Result<T, CommandError>> + Send + 'static,
) -> Result<T, CommandError> {
    let (sender, receiver) = oneshot::channel();
    engine.ports().runtime.spawn(name, Box::pin(async move { drop(sender.send(work.await)) }));
    receiver.await.map_err(|_| CommandError::new(Code::Internal, format!("the {name} panicked")))?
}

/// Follows a recorded task to its end and ignores its progress.
pub(super) async fn end(engine: &Engine, outgoing: Outgoing) -> TaskEnd {
    engine.follow_task(outgoing, &(Arc::new(|_| {}) as ProgressSink), &CancellationToken::new()).await
}

/// Refuses a node that cannot answer now, so that the request does not wait a minute for a disconnected node.
pub(super) fn check_reachable(node: &NodeRecord) -> Result<(), CommandError> {
    let name = &node.name;
    let next_action = match node.state {
        NodeState::Active => None,
        NodeState::NeedsReimage => Some(format!("reimage it, then: gpuaas node reset {name}")),
        NodeState::Registered | NodeState::Enrolled => Some(format!("enroll it: gpuaas node enroll {name}")),
        NodeState::Retired => Some("choose a node that is in use: gpuaas node list".to_owned()),
    };
    if let Some(next) = next_action {
        return Err(CommandError::new(
            Code::StateConflict,
            format!("{name} cannot answer: its state is {}", node.state),
        )
        .then(next));
    }
    if node.connectivity == Connectivity::Connected {
        return Ok(check_takes_tasks(name, node.agent_problem.as_ref())?);
    }
    let detail = format!("{name} has been {} since {}", node.connectivity, node.connectivity_since);
    Err(CommandError::new(Code::NodeUnreachable, detail)
        .then(format!("check whether its machine and its agent run: gpuaas node show {}", node.name)))
}

/// The refusal of a node that already runs its maximum number of tasks. Older agents send [`Code::Unavailable`] for it.
pub(super) fn busy(name: &Name, failure: &TaskFailure) -> CommandError {
    CommandError::new(Code::NodeBusy, format!("{name} accepts no further task now: {}", failure.message))
        .then(format!("try again in a moment; see its running tasks: gpuaas task list --node {name}"))
}

/// Returns the result of a task, or the error for the client. The node's own explanation is only evidence: of its codes, only those below
/// change the response.
pub(super) fn result(node: &NodeRecord, end: TaskEnd) -> Result<serde_json::Value, CommandError> {
    let name = &node.name;
    match end {
        TaskEnd::Succeeded(result) => Ok(result),
        TaskEnd::Interrupted => {
            Err(CommandError::new(Code::HostFailed, format!("the agent of {name} died during the task"))
                .then("try again"))
        }
        TaskEnd::Failed(failure) => Err(match failure.code {
            Code::TaskTimedOut => CommandError::new(Code::NodeUnreachable, format!("{name} did not answer"))
                .then(format!("see its connectivity: gpuaas node show {name}")),
            code @ (Code::EnvelopeExpired | Code::DiskFull) => {
                CommandError::new(code, format!("{name} refused the task: {}", failure.message))
                    .then(format!("see its clock and its disk: gpuaas node show {name}"))
            }
            Code::TaskResultInvalid => CommandError::new(Code::TaskResultInvalid, failure.message)
                .then("check the version of the node's agent"),
            Code::AgentLedgerDamaged => {
                CommandError::new(Code::AgentLedgerDamaged, format!("{name}: {}", failure.message))
                    .then(reenroll_hint(name))
            }
            Code::TaskUnknown => {
                CommandError::new(Code::AgentTooOld, format!("the agent of {name} does not support this task"))
                    .then("upgrade the agent of that node")
            }
            Code::NodeBusy | Code::Unavailable => busy(name, &failure),
            _ => CommandError::new(Code::HostFailed, format!("{name}: {}", failure.message))
                .then("resolve what the node reports, and try again"),
        }),
    }
}
