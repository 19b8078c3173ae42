//! Single node tasks within a request: sent in a background task, with their end mapped to the response.

use std::sync::Arc;

use gpuaas_model::{Code, Connectivity, Name, NodeState};
use gpuaas_store::NodeRecord;
use gpuaas_wire::task::{TaskFailure, TaskOutcome};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    dispatch::{Outgoing, TaskEnd},
    effects::ProgressSink,
    engine::Engine,
    error::CommandError,
    ownership::{must_take_tasks, next_without_tasks},
};

/// Runs the work in a background task and returns its result, so that a client that disconnects leaves no task without an end.
pub(super) async fn beside<T: Send + 'static>(
    engine: &Engine,
    name: &'static str,
    work: impl Future<Output = Result<T, CommandError>> + Send + 'static,
) -> Result<T, CommandError> {
    let (tell, told) = oneshot::channel();
    engine.ports().runtime.spawn(name, Box::pin(async move { drop(tell.send(work.await)) }));
    told.await.map_err(|_| CommandError::new(Code::Internal, format!("the {name} panicked")))?
}

/// Follows a recorded task to its end and ignores its progress.
pub(super) async fn end(engine: &Engine, outgoing: Outgoing) -> TaskEnd {
    engine.follow_task(outgoing, &(Arc::new(|_| {}) as ProgressSink), &CancellationToken::new()).await
}

/// Refuses a node that cannot answer now, so that the request does not wait a minute for a disconnected node.
pub(super) fn must_answer(node: &NodeRecord) -> Result<(), CommandError> {
    let name = &node.name;
    let brought_in = match node.state {
        NodeState::Active | NodeState::InMaintenance => None,
        NodeState::NeedsReimage => Some(format!("reimage it, then: gpuaas node reset {name}")),
        NodeState::Registered | NodeState::Enrolled => Some(format!("bring it in: gpuaas node enroll {name}")),
        NodeState::Retired => Some("ask for one that is in use: gpuaas node list".to_owned()),
    };
    if let Some(next) = brought_in {
        return Err(CommandError::new(Code::StateConflict, format!("{name} is {}", node.state)).then(next));
    }
    if node.connectivity == Connectivity::Connected {
        return Ok(must_take_tasks(name, node.agent_problem.as_ref())?);
    }
    let detail = format!("{name} has been {} since {}", node.connectivity, node.connectivity_since);
    Err(CommandError::new(Code::NodeUnreachable, detail)
        .then(format!("see whether its machine and its agent run: gpuaas node show {}", node.name)))
}

/// The refusal of a node that already runs its maximum number of tasks. Agents up to 0.1.0 send [`Code::Unavailable`] for it.
pub(super) fn busy(name: &Name, failure: &TaskFailure) -> CommandError {
    CommandError::new(Code::NodeBusy, format!("{name} takes no further task now: {}", failure.message))
        .then(format!("try again in a moment; see what it does: gpuaas task list --node {name}"))
}

/// Returns the result of a task, or the error for the client. The node's own explanation is only evidence: of its codes, only those below
/// change the response.
pub(super) fn result(node: &NodeRecord, end: TaskEnd) -> Result<serde_json::Value, CommandError> {
    let name = &node.name;
    match end {
        TaskEnd::Outcome(TaskOutcome::Succeeded { result }) => Ok(result),
        TaskEnd::Interrupted => {
            Err(CommandError::new(Code::HostFailed, format!("the agent of {name} died in the middle"))
                .then("try again"))
        }
        TaskEnd::Outcome(TaskOutcome::Failed { failure }) => Err(match failure.code {
            Code::TaskTimedOut => CommandError::new(Code::NodeUnreachable, format!("{name} did not answer"))
                .then(format!("see its connectivity: gpuaas node show {name}")),
            code @ (Code::EnvelopeExpired | Code::DiskFull) => {
                CommandError::new(code, format!("{name} refused it: {}", failure.message))
                    .then(format!("see its clock and its disk: gpuaas node show {name}"))
            }
            Code::AnswerInvalid => {
                CommandError::new(Code::AnswerInvalid, failure.message).then("see which version the node's agent has")
            }
            Code::AgentLedgerDamaged => {
                CommandError::new(Code::AgentLedgerDamaged, format!("{name}: {}", failure.message))
                    .then(next_without_tasks(name))
            }
            Code::TaskUnknown => {
                CommandError::new(Code::AgentTooOld, format!("the agent of {name} does not know that task"))
                    .then("upgrade the agent of that node")
            }
            Code::NodeBusy | Code::Unavailable => busy(name, &failure),
            _ => CommandError::new(Code::HostFailed, format!("{name}: {}", failure.message))
                .then("see what the node says, and try again"),
        }),
    }
}
