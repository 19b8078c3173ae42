//! The reason for which a node's agent takes no tasks, as the agent reports it when it connects.

use gpuaas_model::{Code, EventKind, Timestamp};
use gpuaas_store::{NodeProblem, NodeRecord, StoreError, Tx};
use gpuaas_wire::session::{AgentProblem, AgentProblemKind, Hello};
use serde_json::json;

use crate::{record::platform_event, waiting};

/// The problem that a hello reports. `hello.ledger` is not compared with earlier ones: hellos of several replicas can be recorded out of
/// order.
pub(super) fn of_hello(node: &NodeRecord, hello: &Hello, now: Timestamp) -> Option<NodeProblem> {
    let AgentProblem { kind, detail } = hello.problem.clone()?;
    let code = match kind {
        AgentProblemKind::LedgerMissing | AgentProblemKind::LedgerDamaged | AgentProblemKind::LedgerOlder => {
            Code::AgentLedgerDamaged
        }
        AgentProblemKind::Other => Code::NodeUnavailable,
    };
    let before = node.agent_problem.as_ref().filter(|before| before.code == code);
    Some(NodeProblem { code, detail, since: before.map_or(now, |before| before.since) })
}

/// Writes an event if the node's agent stopped taking tasks, takes them again, or has another reason.
pub(super) async fn record_change(
    tx: &mut Tx,
    node: &NodeRecord,
    before: Option<&NodeProblem>,
) -> Result<(), StoreError> {
    if node.agent_problem.as_ref() == before {
        return Ok(());
    }
    let problem = node.agent_problem.as_ref();
    let data = json!({
        "name": node.name, "problem": problem.map(|problem| problem.code),
        "detail": problem.map(|problem| &problem.detail), "waiting": waiting::of_node(node, None),
    });
    platform_event(tx, EventKind::NodeAgentProblemChanged, "node", node.id.to_string(), None, data).await
}
