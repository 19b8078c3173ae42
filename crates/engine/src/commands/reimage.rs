//! Reimaging of machines that tenants have left: the required proof, and the hook that reimages.
//!
//! The tenant had root on the machine and may know everything on it, including keys. Therefore a machine returns with a key that was never
//! certified and, unless an operator forces it with a reason, with another machine id. If a [`ReimageHook`] is configured, it must also
//! present the value that only the hook received.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AuditAction, Code, EventKind, Line, NodeEvent, NodeId, NodeState, Permission};
use gpuaas_store::{EnrollmentTerms, NodeRecord, ReturnedMachine, StoreError, Tx};
use gpuaas_trust::{ApiToken, sha256_hex};
use gpuaas_wire::session::ReimageEvidence;
use serde_json::json;

use super::{
    audit,
    enrollment::{Forced, issue},
    platform_task::run_in_background,
};
use crate::{
    caller::Caller,
    engine::Engine,
    error::{CommandError, check_line},
    port::{ReimageHook, ReimageOrder},
    precondition::Precondition,
    record::platform_event,
    waiting,
};

/// Prefix of the value that proves a reimage.
const VALUE_PREFIX: &str = "gpuaas-reimage";
/// Time limit of a hook: it passes the machine to a provisioner and does not wait for the installation.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// Requires from now on that the node's machine is reimaged before it enrolls again, as this or another node.
pub(super) async fn require_proof(engine: &Engine, tx: &mut Tx, node: &mut NodeRecord) -> Result<(), StoreError> {
    let (at, machine_id) = (engine.ports().clock.now(), node.machine_id.clone());
    if let Some(machine_id) = &machine_id {
        tx.remember_left_machine(machine_id, node.id, at).await?;
    }
    node.left_by_tenant = Some(ReturnedMachine { at, machine_id });
    Ok(())
}

/// Refuses a machine that a tenant has left, under any name. The machine that an enrolled node already has was accepted despite the other
/// nodes that were left with its id, perhaps by force. A forced enrollment ends the requirement, except for other nodes that are still
/// registered: the machine itself reports its id, so it must not free the machines of those nodes.
pub(super) async fn check_left_machine(
    tx: &mut Tx,
    node: &NodeRecord,
    terms: &EnrollmentTerms,
    machine_id: &str,
) -> Result<(), CommandError> {
    let left = tx.nodes_that_were_left(machine_id).await?;
    let is_enrolled = matches!(node.state, NodeState::Enrolled | NodeState::Active);
    let is_known = is_enrolled && node.machine_id.as_deref() == Some(machine_id);
    let refusing = left.iter().find(|left| !is_known || left.id == node.id);
    if let (Some(left), false) = (refusing, terms.is_forced) {
        let detail = format!("the machine's id is the same as while a tenant held it as {}", left.name);
        return Err(not_reimaged(format!("{detail}, so it was not reimaged")));
    }
    let is_gone = |left: &NodeRecord| left.state == NodeState::Retired || left.deleted_at.is_some();
    let is_forced = terms.is_forced;
    for left in left.iter().filter(|left| is_forced && (left.id == node.id || is_gone(left))) {
        tx.forget_left_machine(machine_id, left.id).await?;
    }
    Ok(())
}

fn not_reimaged(detail: impl Into<String>) -> CommandError {
    CommandError::new(Code::MachineNotReimaged, detail)
        .about("machine_id")
        .then("reimage it, or force it with a reason: gpuaas node enroll NODE --force --reason TEXT")
}

/// Refuses a machine that returns after a tenant without the required proof.
pub(super) fn check(
    engine: &Engine,
    left: Option<&ReturnedMachine>,
    terms: &EnrollmentTerms,
    (machine_id, evidence): (&str, Option<&ReimageEvidence>),
) -> Result<(), CommandError> {
    let Some(left) = left.filter(|_| !terms.is_forced) else { return Ok(()) };
    if left.machine_id.as_deref() == Some(machine_id) {
        return Err(not_reimaged("the machine's id is the same as while a tenant held it, so it was not reimaged"));
    }
    if engine.reimage_hook().is_some() && !is_proven(terms, evidence) {
        let detail = "the machine did not present the one-time value of the reimage hook";
        return Err(CommandError::new(Code::ReimageUnverified, detail)
            .about("reimage")
            .then("reimage it with the hook: gpuaas node reimage NODE"));
    }
    Ok(())
}

/// Returns whether the evidence is the value given to the hook for this enrollment.
fn is_proven(terms: &EnrollmentTerms, evidence: Option<&ReimageEvidence>) -> bool {
    match (&terms.reimage_sha256, evidence) {
        (Some(expected), Some(ReimageEvidence::OneTimeValue { value })) => *expected == sha256_hex(value.as_bytes()),
        (None, _) | (_, None) => false,
    }
}

/// Generates a new value for the hook.
pub(super) fn one_time_value(engine: &Engine) -> ApiToken {
    engine.keys().tokens().generate(VALUE_PREFIX, &*engine.ports().entropy)
}

/// Passes a node that a tenant has left to the reimage hook, with its enrollment string and the value that the machine must present. An
/// order that the hook did not accept can be repeated: the newest string and value are valid.
pub async fn reimage(
    engine: &Arc<Engine>,
    caller: &Caller,
    id: NodeId,
    precondition: &Precondition,
) -> Result<NodeRecord, CommandError> {
    caller.require(Permission::NodesWrite)?;
    let mut tx = engine.store().begin().await?;
    let node = tx.node(id).await?;
    precondition.check(&node.name, &node)?;
    let hook = engine.reimage_hook().cloned().ok_or_else(|| {
        CommandError::new(Code::ReimageHookMissing, "this control plane has no reimage hook").then(format!(
            "set reimage-hook, or reimage the machine yourself, then run: gpuaas node reset {}",
            node.name
        ))
    })?;
    let node = reset_for_hook(&mut tx, caller, node).await?;
    let value = one_time_value(engine);
    let string = issue(engine, caller, &mut tx, &node, (None, Some(value.sha256))).await?;
    audit(&mut tx, caller, AuditAction::NodeReimage, format!("node/{}", node.name), None, json!({})).await?;
    caller.commit(tx).await?;
    if caller.is_dry_run {
        return Ok(node);
    }
    let order = ReimageOrder { node: id, name: node.name.clone(), enrollment: string, value: value.text };
    let at = engine.clone();
    run_in_background(engine, "reimage", async move { run_hook(&at, hook, order).await }).await?;
    Ok(node)
}

/// Resets the node for the hook: one that a tenant has left, or one that was reset for the hook before.
async fn reset_for_hook(tx: &mut Tx, caller: &Caller, mut node: NodeRecord) -> Result<NodeRecord, CommandError> {
    match node.state {
        // Updated although no field differs: it raises the generation, because the newest string and value change.
        NodeState::Registered if node.left_by_tenant.is_some() => return Ok(tx.update_node(&node).await?),
        NodeState::NeedsReimage => {}
        state => {
            return Err(CommandError::new(Code::StateConflict, format!("{} is {state}", node.name))
                .then("only a node that a tenant has released can be reimaged"));
        }
    }
    node.state = node.state.on(NodeEvent::Reset)?;
    node.epoch += 1;
    node.clear_machine_facts();
    let node = tx.update_node(&node).await?;
    let data = json!({ "name": node.name, "state": node.state, "waiting": waiting::of_node(&node, None) });
    let correlation = Some(caller.correlation);
    platform_event(tx, EventKind::NodeStateChanged, "node", node.id.to_string(), correlation, data).await?;
    Ok(node)
}

async fn run_hook(engine: &Engine, hook: Arc<dyn ReimageHook>, order: ReimageOrder) -> Result<(), CommandError> {
    let name = order.name.clone();
    let given_up = engine.ports().runtime.sleep_until(engine.ports().clock.now().plus(HOOK_TIMEOUT));
    let taken = tokio::select! {
        biased;
        taken = hook.reimage(order) => taken,
        () = given_up => Err(format!("it did not end within {} s", HOOK_TIMEOUT.as_secs())),
    };
    taken.map_err(|why| {
        CommandError::new(Code::ReimageHookFailed, format!("the reimage hook failed for {name}: {why}"))
            .then(format!("see the hook's own log, then try again: gpuaas node reimage {name}"))
    })
}

/// Refuses a reason that is not a single line of text.
pub(super) fn check_reason(forced: &Forced) -> Result<(), CommandError> {
    check_line(Line::REASON, &forced.reason, "reason")
}
