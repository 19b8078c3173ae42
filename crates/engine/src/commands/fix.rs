//! Applies safe fixes on a node, each followed by a new inspection.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AuditAction, Check, Code, CorrelationId, EventKind, FixKind, Name, NodeId, Permission};
use gpuaas_store::NodeRecord;
use gpuaas_wire::task::{Fix, Fixed, TaskSpec};
use serde_json::json;

use super::{audit, platform_task};
use crate::{
    caller::Caller,
    dispatch::{Origin, Outgoing, TaskEnd},
    engine::Engine,
    error::CommandError,
    ownership,
    record::platform_event,
};

/// Time limit of a fix. It writes a file and sets a few values; loading a module may wait for a device.
const FIX_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a fix.
#[derive(Clone, Debug, PartialEq)]
pub struct FixResult {
    /// The node after the new inspection.
    pub node: NodeRecord,
    /// The kind of fix.
    pub kind: FixKind,
    /// The node's report of what it changed.
    pub fixed: Fixed,
}

/// Applies a fix, named by its kind or by the finding that it resolves.
pub async fn fix(engine: &Arc<Engine>, caller: &Caller, id: NodeId, finding: &str) -> Result<FixResult, CommandError> {
    caller.require(Permission::NodesWrite)?;
    let mut tx = engine.store().begin().await?;
    let node = tx.node(id).await?;
    let kind = kind_of(&node.name, finding)?;
    platform_task::check_reachable(&node)?;
    let access = ownership::for_operator(&mut tx, caller, id).await?;
    if !node.support.iter().any(|known| known.task == Fix::TYPE.as_str()) {
        return Err(CommandError::new(Code::AgentTooOld, format!("the agent of {} does not support fixes", node.name))
            .then("upgrade the agent of that node"));
    }
    let origin = Origin::standalone(caller.correlation);
    let expires_at = engine.ports().clock.now().plus(FIX_TIMEOUT);
    let what = (Fix::TYPE, Fix::OLDEST);
    let task = engine.record_task(&mut tx, access, origin, what, json!(Fix { kind }), expires_at).await?;
    let metadata = json!({ "fix": kind, "task": task.task.id });
    audit(&mut tx, caller, AuditAction::NodeFix, format!("node/{}", node.name), None, metadata).await?;
    tx.commit().await?;
    let (within, correlation) = (engine.clone(), caller.correlation);
    let ending = async move { within.end_fix(node, kind, task, correlation).await };
    Box::pin(platform_task::run_in_background(engine, "fix", ending)).await
}

impl Engine {
    async fn end_fix(
        &self,
        node: NodeRecord,
        kind: FixKind,
        sent: Outgoing,
        correlation: CorrelationId,
    ) -> Result<FixResult, CommandError> {
        let task = sent.task.clone();
        let end = platform_task::end(self, sent).await;
        let mut tx = self.store().begin().await?;
        self.record_task_end(&mut tx, task, &end).await?;
        let fixed = parse_result(&node, end);
        if let Ok(fixed) = &fixed {
            let data = json!({ "name": node.name, "fix": kind, "path": fixed.path, "changed": fixed.changed });
            platform_event(&mut tx, EventKind::NodeFixed, "node", node.id.to_string(), Some(correlation), data).await?;
        }
        tx.commit().await?;
        let fixed = fixed?;
        Ok(FixResult { node: self.inspect_again(node, correlation).await, kind, fixed })
    }

    /// Inspects the node again. Returns its earlier row if it does not answer, because the fix itself is done.
    async fn inspect_again(&self, node: NodeRecord, correlation: CorrelationId) -> NodeRecord {
        match self.inspect_quickly(node.id, correlation).await {
            Ok(node) => node,
            Err(error) => {
                tracing::warn!(node = %node.id, %error, "a node could not be inspected again after a fix");
                node
            }
        }
    }
}

/// Returns the fix of the given name, or the fix for the finding of that name; `node` is for the error.
fn kind_of(node: &Name, text: &str) -> Result<FixKind, CommandError> {
    let of_finding = text.parse::<Check>();
    match (text.parse::<FixKind>(), &of_finding) {
        (Ok(kind), _) => return Ok(kind),
        (Err(_), Ok(check)) => {
            if let Some(kind) = check.fix() {
                return Ok(kind);
            }
        }
        (Err(_), Err(_)) => {}
    }
    let all: Vec<&str> = FixKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let (detail, next) = match of_finding {
        Ok(check) => (
            format!("there is no fix for {check}"),
            format!("follow the finding's advice on the machine, then run: gpuaas node inspect {node}"),
        ),
        Err(_) => (format!("there is no fix {text:?}"), format!("use one of {}", all.join(", "))),
    };
    Err(CommandError::new(Code::FixUnknown, detail).about("finding").then(next))
}

fn parse_result(node: &NodeRecord, end: TaskEnd) -> Result<Fixed, CommandError> {
    let result = platform_task::result(node, end)?;
    serde_json::from_value(result).map_err(|error| CommandError::new(Code::TaskResultInvalid, error.to_string()))
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded;

    use super::*;

    #[test]
    fn a_fix_is_named_by_itself_or_by_its_finding() {
        let node = "gpu-7".parse().expect("a name");
        assert_eq!(kind_of(&node, "inotify"), Ok(FixKind::Inotify));
        assert_eq!(kind_of(&node, "inotify_low"), Ok(FixKind::Inotify));
        for (odd, next) in
            [("firewall_active", "on the machine"), ("rm -rf /", "inotify, forwarding, modules"), ("", "one of")]
        {
            let refused = kind_of(&node, odd).unwrap_err();
            assert_eq!(refused.code(), Code::FixUnknown, "{odd}");
            assert!(refused.next().is_some_and(|text| text.contains(next)), "{odd}: {refused:?}");
        }
    }
}
