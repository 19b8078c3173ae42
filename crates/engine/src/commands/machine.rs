//! Which machine a node's agent runs on, and whether it is another one than before.

use gpuaas_model::{CorrelationId, EventKind, Timestamp};
use gpuaas_store::{MachineChange, NodeRecord, StoreError, Tx};
use serde_json::json;

use crate::record::platform_event;

/// Keeps the machine's id that the node told. Another one than before is told by an event, kept with its time, and has the node inspected anew.
pub(super) async fn note(
    tx: &mut Tx,
    node: &mut NodeRecord,
    told: String,
    now: Timestamp,
    correlation: Option<CorrelationId>,
) -> Result<(), StoreError> {
    let before = node.machine_id.replace(told.clone()).filter(|before| *before != told);
    let Some(before) = before else { return Ok(()) };
    let data = json!({ "name": node.name, "before": before, "now": told });
    node.machine_changed = Some(MachineChange { at: now, before });
    // What was found on the other one says nothing of this one. Its addresses are in use until this one tells its own.
    (node.inspected_at, node.machine, node.preflight) = (None, None, None);
    platform_event(tx, EventKind::NodeMachineChanged, "node", node.id.to_string(), correlation, data).await
}
