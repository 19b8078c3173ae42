//! Detects that a node's agent runs on another machine than before.

use gpuaas_model::{CorrelationId, EventKind, Timestamp};
use gpuaas_store::{MachineChange, MemberRecord, NodeRecord, StoreError, Tx};
use serde_json::json;

use crate::record::{EventScope, platform_event};

/// Forgets what members left on the node's former machine. Called if an enrollment brings another machine: without it, an uninstall would
/// delete files of the new machine as if RKE2 had made them.
pub(super) async fn forget_former_machine(
    tx: &mut Tx,
    node: &NodeRecord,
    correlation: CorrelationId,
) -> Result<(), StoreError> {
    for member in tx.members_on(node.id).await? {
        let mut workload = tx.workload(member.workload).await?;
        workload.forget_machine_of(&member);
        tx.update_workload(&workload).await?;
        let events = EventScope { project: workload.project, correlation };
        events.workload(tx, EventKind::WorkloadChanged, &workload).await?;
        let state = member.state.name();
        tx.update_member(&MemberRecord { touched: false, ..member }, state).await?;
    }
    Ok(())
}

/// Stores the machine id that the node reports. If it changed, records the change with its time, writes an event, and clears the results of
/// the last inspection so that the node is inspected again.
pub(super) async fn record_machine(
    tx: &mut Tx,
    node: &mut NodeRecord,
    reported: String,
    now: Timestamp,
    correlation: Option<CorrelationId>,
) -> Result<(), StoreError> {
    let before = node.machine_id.replace(reported.clone()).filter(|before| *before != reported);
    let Some(before) = before else { return Ok(()) };
    let data = json!({ "name": node.name, "before": before, "now": reported });
    node.machine_changed = Some(MachineChange { at: now, before });
    // The results of the old machine do not apply to the new one. `facts` keeps the old addresses until the new machine reports its own.
    (node.inspected_at, node.machine, node.preflight) = (None, None, None);
    platform_event(tx, EventKind::NodeMachineChanged, "node", node.id.to_string(), correlation, data).await
}
