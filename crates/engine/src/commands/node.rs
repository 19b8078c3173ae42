//! Node commands: register, enroll, reset, renew, and the effects of connections.

use std::collections::BTreeMap;

use gpuaas_model::{
    AuditAction, Code, Connectivity, CorrelationId, EnrolledNode, EventKind, Line, Name, NodeEvent, NodeId, NodeState,
    Permission, Timestamp,
};
use gpuaas_store::{
    EnrollmentRefusal, NewAudit, NodeKeyRecord, NodeLedger, NodeRecord, Reader, SessionRecord, StoreError, Tx,
};
use gpuaas_trust::{NodeIdentity, SecretText, sha256_hex};
use gpuaas_wire::{
    bounds::one_line,
    session::{CHANNEL_ENDPOINTS_MAX, EnrollRequest, EnrollResponse, Hello, LedgerMark, RenewRequest},
};
use serde_json::json;
use uuid::Uuid;

pub use super::enrollment::Forced;
use super::{
    agent_problem, audit, clock,
    enrollment::{TOKEN_PREFIX, issue},
    history, machine,
    node_in_use::check_not_in_use,
    reimage,
};
use crate::{
    caller::Caller,
    engine::Engine,
    error::{CommandError, check_line},
    keys::Keys,
    precondition::Precondition,
    record::platform_event,
    waiting,
};

/// Maximum number of labels per node.
const LABELS_MAX: usize = 64;
/// Maximum length of a region and of a label's name, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Maximum length of a kept text that a node reports about itself, in bytes.
const NODE_TEXT_BYTES_MAX: usize = 256;

/// Registers a machine under a name and returns its enrollment string.
pub async fn register(
    engine: &Engine,
    caller: &Caller,
    name: Name,
    region: Option<String>,
    labels: BTreeMap<String, String>,
) -> Result<(NodeRecord, SecretText), CommandError> {
    caller.require(Permission::NodesWrite)?;
    check(region.as_deref(), &labels)?;
    let ports = engine.ports();
    let now = ports.clock.now();
    let node = NodeRecord {
        id: NodeId::generate(&*ports.clock, &*ports.entropy),
        name,
        region,
        labels,
        state: NodeState::Registered,
        epoch: 0,
        connectivity: Connectivity::Never,
        connectivity_since: now,
        clock_skew_seconds: None,
        agent_version: None,
        agent_problem: None,
        ledger: None,
        machine_id: None,
        left_by_tenant: None,
        machine_changed: None,
        support: Vec::new(),
        facts: None,
        machine: None,
        preflight: None,
        inspected_at: None,
        certified_by: None,
        created_at: now,
        deleted_at: None,
        generation: 0,
    };
    let mut tx = engine.store().begin().await?;
    tx.insert_node(&node).await?;
    let data = json!({ "name": node.name, "region": node.region });
    let correlation = Some(caller.correlation);
    let event = waiting::with(data.clone(), waiting::of_node(&node, None));
    platform_event(&mut tx, EventKind::NodeRegistered, "node", node.id.to_string(), correlation, event).await?;
    audit(&mut tx, caller, AuditAction::NodeRegister, format!("node/{}", node.name), None, data).await?;
    let string = issue(engine, caller, &mut tx, &node, (None, None)).await?;
    tx.commit().await?;
    Ok((node, string))
}

/// Checks the region and labels that operators set: lists and pages show them, so they are short names and single lines.
fn check(region: Option<&str>, labels: &BTreeMap<String, String>) -> Result<(), CommandError> {
    let refuse = |field: String, detail: String| {
        Err(CommandError::new(Code::FieldInvalid, detail).about(field).then("correct it, or leave it out"))
    };
    let is_valid_name = |text: &str, more: &[u8]| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
        let ends = [text.bytes().next(), text.bytes().next_back()];
        let ends_well = ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()));
        ends_well && text.len() <= NAME_BYTES_MAX && text.bytes().all(plain)
    };
    if region.is_some_and(|region| !is_valid_name(region, b"._-")) {
        return refuse(
            "region".to_owned(),
            format!(
                "a region has 1 to {NAME_BYTES_MAX} letters, digits and . _ -, with a letter or digit at both ends"
            ),
        );
    }
    if labels.len() > LABELS_MAX {
        return refuse("labels".to_owned(), format!("a node has at most {LABELS_MAX} labels"));
    }
    for (name, value) in labels {
        if !is_valid_name(name, b"._-/") {
            let detail = format!(
                "a label's name has 1 to {NAME_BYTES_MAX} letters, digits and . _ - /, with a letter or digit at both ends"
            );
            return refuse("labels".to_owned(), detail);
        }
        check_line(Line::LABEL_VALUE, value, &format!("labels.{name}"))?;
    }
    Ok(())
}

/// Issues a new enrollment string; earlier strings of the node become invalid.
pub async fn issue_enrollment(
    engine: &Engine,
    caller: &Caller,
    id: NodeId,
    precondition: &Precondition,
    forced: Option<&Forced>,
) -> Result<(NodeRecord, SecretText), CommandError> {
    caller.require(Permission::NodesWrite)?;
    forced.map(reimage::check_reason).transpose()?;
    let mut tx = engine.store().begin().await?;
    let node = tx.node(id).await?;
    precondition.check(&node.name, &node)?;
    check_can_enroll(&node, forced.is_some())?;
    // Updated although no field differs: it raises the generation, so that clients that saw the node before this string must read it again.
    let node = tx.update_node(&node).await?;
    let string = issue(engine, caller, &mut tx, &node, (forced, None)).await?;
    tx.commit().await?;
    Ok((node, string))
}

/// Refuses a node whose identity still works, and a node whose state does not allow an enrollment.
fn check_can_enroll(node: &NodeRecord, is_forced: bool) -> Result<(), CommandError> {
    let NodeRecord { name, state, .. } = node;
    let next = match state {
        NodeState::Registered | NodeState::Enrolled => return Ok(()),
        NodeState::Active if enrolls_in_place(node, is_forced) => return Ok(()),
        NodeState::Active => {
            format!("if its machine has lost its identity: gpuaas node enroll {name} --force --reason TEXT")
        }
        NodeState::NeedsReimage => format!("reset it first, after its machine was reimaged: gpuaas node reset {name}"),
        NodeState::Retired => register_again(name),
    };
    Err(CommandError::new(Code::StateConflict, format!("{name} is {state} and cannot be enrolled")).then(next))
}

/// Returns `true` if a node in use may get a new identity: its agent takes no tasks, or an operator forces it. Its workloads keep running.
fn enrolls_in_place(node: &NodeRecord, is_forced: bool) -> bool {
    is_forced || node.agent_problem.is_some()
}

/// Refuses a machine other than the enrolled one, unless forced: the node's workloads run on the enrolled machine.
fn check_same_machine(node: &NodeRecord, machine_id: &str, is_forced: bool) -> Result<(), CommandError> {
    let NodeRecord { name, state, .. } = node;
    if is_forced || node.machine_id.as_ref().is_none_or(|known| known == machine_id) {
        return Ok(());
    }
    let next = format!(
        "run the command on the machine of {name}, or use this machine: gpuaas node enroll {name} --force --reason TEXT"
    );
    Err(CommandError::new(Code::StateConflict, format!("{name} is {state} on another machine")).then(next))
}

/// Returns the SHA-256 digest of an enrollment token that this control plane issued, valid or not. Refuses any other text without a
/// database query.
pub fn digest_of_token(keys: &Keys, token: &str) -> Result<String, CommandError> {
    match keys.tokens().has_valid_code(TOKEN_PREFIX, token) {
        true => Ok(sha256_hex(token.as_bytes())),
        false => Err(EnrollmentRefusal::Unknown.into()),
    }
}

/// Redeems an enrollment token: issues the node's certificate and raises its epoch, which voids everything of earlier enrollments.
pub async fn redeem(
    engine: &Engine,
    correlation: CorrelationId,
    ask: EnrollRequest,
) -> Result<EnrollResponse, CommandError> {
    let now = engine.ports().clock.now();
    clock::check_skew(ask.clock, now)?;
    let sha256 = digest_of_token(engine.keys(), SecretText::new(ask.token).expose())?;
    // Checks on a reader first, so that requests without a valid token never take the write lock.
    engine.store().read().await?.check_enrollment(&sha256, ask.node, now).await?;
    let mut tx = engine.store().begin().await?;
    let terms = tx.redeem_enrollment(&sha256, ask.node, now).await?;
    let mut node = tx.node(ask.node).await?;
    let machine = (bounded(&ask.machine_id), ask.reimage.as_ref());
    let is_in_place = node.state == NodeState::Active && enrolls_in_place(&node, terms.is_forced);
    reimage::check(engine, node.left_by_tenant.take().as_ref(), &terms, (&machine.0, machine.1))?;
    reimage::check_left_machine(&mut tx, &node, &terms, &machine.0).await?;
    if is_in_place {
        check_same_machine(&node, &machine.0, terms.is_forced)?;
    } else {
        node.state = node.state.on(NodeEvent::Enroll)?;
    }
    node.epoch += 1;
    let problem = node.agent_problem.take();
    if node.machine_id.as_ref().is_some_and(|former| *former != machine.0) {
        machine::forget_former_machine(&mut tx, &node, correlation).await?;
    }
    certify_key(&mut tx, &ask.csr, EnrolledNode { node: node.id, epoch: node.epoch }, now).await?;
    machine::record_machine(&mut tx, &mut node, bounded(&ask.machine_id), now, Some(correlation)).await?;
    node.agent_version = Some(bounded(&ask.agent_version));
    let control_plane = engine.keys().control_plane().to_owned();
    let identity = NodeIdentity { control_plane: control_plane.clone(), node: node.id, epoch: node.epoch };
    let ring = engine.keys().ring(&mut tx).await?;
    let authority = ring.authorities().active();
    let certificate = authority
        .issue_node(&ask.csr, &identity, now)
        .map_err(|error| CommandError::new(Code::FieldInvalid, error.to_string()).about("csr"))?;
    node.certified_by = Some(authority.digest());
    let node = tx.update_node(&node).await?;
    let data = json!({ "name": node.name, "epoch": node.epoch });
    let event = waiting::with(data.clone(), waiting::of_node(&node, None));
    platform_event(&mut tx, EventKind::NodeEnrolled, "node", node.id.to_string(), Some(correlation), event).await?;
    agent_problem::record_change(&mut tx, &node, problem.as_ref()).await?;
    audit_node(&mut tx, &node, AuditAction::NodeEnroll, correlation, data).await?;
    let channels = channels(engine, &mut tx).await?;
    let key_set = engine.keys().signed_set(&mut tx, now).await?.text;
    let key_set = serde_json::from_str(&key_set)
        .map_err(|error| CommandError::new(Code::Internal, format!("the key set is not JSON: {error}")))?;
    let response = EnrollResponse {
        certificate,
        authority: ring.authorities().pem(),
        channels,
        control_plane,
        epoch: node.epoch,
        key_set,
    };
    tx.commit().await?;
    Ok(response)
}

/// Records the key of a certificate request. Refuses a key that was certified before.
async fn certify_key(tx: &mut Tx, csr: &str, node: EnrolledNode, now: Timestamp) -> Result<(), CommandError> {
    let sha256 = gpuaas_trust::requested_key_sha256(csr)
        .map_err(|error| CommandError::new(Code::FieldInvalid, error.to_string()).about("csr"))?;
    let EnrolledNode { node, epoch } = node;
    Ok(tx.insert_node_key(&NodeKeyRecord { sha256, node, epoch, created_at: now }).await?)
}

/// The channel endpoints for nodes: this process first, because it is known to answer, then every other replica.
pub async fn channels(engine: &Engine, reader: &mut Reader) -> Result<Vec<String>, StoreError> {
    let own = engine.endpoints().channel.clone();
    let others = reader.replicas().await?.into_iter().map(|life| life.replica.channel);
    let mut channels: Vec<String> = std::iter::once(own.clone()).chain(others.filter(|other| *other != own)).collect();
    channels.truncate(CHANNEL_ENDPOINTS_MAX);
    Ok(channels)
}

/// Resets a node: its identity ends, and it enrolls again. After a tenant the machine must be reimaged, unless the reset is forced. Any
/// other node needs a forced reset, because it cuts off everything that runs there. The string of a dry run was never issued.
pub async fn reset(
    engine: &Engine,
    caller: &Caller,
    id: NodeId,
    precondition: &Precondition,
    forced: Option<&Forced>,
) -> Result<(NodeRecord, SecretText), CommandError> {
    caller.require(Permission::NodesWrite)?;
    forced.map(reimage::check_reason).transpose()?;
    let mut tx = engine.store().begin().await?;
    let mut node = tx.node(id).await?;
    precondition.check(&node.name, &node)?;
    if forced.is_none() && matches!(node.state, NodeState::Enrolled | NodeState::Active) {
        // Where force does not help, it is not advised.
        check_not_in_use(&mut tx, &node, true).await?;
    }
    let event = reset_event(&node, forced.is_some())?;
    if check_not_in_use(&mut tx, &node, forced.is_some()).await?.is_some() {
        reimage::require_proof(engine, &mut tx, &mut node).await?;
    }
    node.state = node.state.on(event)?;
    // Certificates of earlier enrollments are void from now on.
    node.epoch += 1;
    node.clear_machine_facts();
    let node = tx.update_node(&node).await?;
    let data = json!({ "name": node.name, "state": node.state, "waiting": waiting::of_node(&node, None) });
    let correlation = Some(caller.correlation);
    platform_event(&mut tx, EventKind::NodeStateChanged, "node", id.to_string(), correlation, data).await?;
    let metadata = json!({ "forced": forced.map(|forced| &forced.reason) });
    audit(&mut tx, caller, AuditAction::NodeReset, format!("node/{}", node.name), None, metadata).await?;
    let string = issue(engine, caller, &mut tx, &node, (forced, None)).await?;
    caller.commit(tx).await?;
    Ok((node, string))
}

/// Returns the event that resets a node in its present state, or refuses.
fn reset_event(node: &NodeRecord, is_forced: bool) -> Result<NodeEvent, CommandError> {
    let refuse = |detail: String, next: String| Err(CommandError::new(Code::StateConflict, detail).then(next));
    let NodeRecord { name, state, .. } = node;
    match state {
        NodeState::NeedsReimage => Ok(NodeEvent::Reset),
        NodeState::Enrolled | NodeState::Active if is_forced => Ok(NodeEvent::ForceReset),
        NodeState::Enrolled | NodeState::Active => refuse(
            format!("{name} is {state}; a reset of a node that needs no reimage must be forced"),
            format!("to accept its machine as it is: gpuaas node reset {name} --force --reason TEXT"),
        ),
        NodeState::Registered => refuse(
            format!("{name} is registered, so there is nothing to reset"),
            format!("create a new enrollment string: gpuaas node enroll {name}"),
        ),
        NodeState::Retired => refuse(format!("{name} is retired"), register_again(name)),
    }
}

fn register_again(name: &Name) -> String {
    format!("delete it, reimage its machine, and register it again: gpuaas node delete {name}")
}

/// Records that this process holds the node's channel, so that every replica finds it here. Stores the facts of the hello and makes an
/// enrolled node active. Refuses a connection of an earlier enrollment, and one that is older than the recorded one.
pub async fn connected(
    engine: &Engine,
    enrolled: EnrolledNode,
    connection: Uuid,
    hello: &Hello,
) -> Result<(), CommandError> {
    let id = enrolled.node;
    // Taken before any wait, because the order of the connections counts, not the order in which they are recorded.
    let session = session(engine, id, connection, hello);
    let skew = hello.clock.map(|clock| clock::skew_seconds(clock, engine.ports().clock.now()));
    let mut tx = engine.store().begin().await?;
    let mut node = tx.node(id).await?;
    if node.epoch != enrolled.epoch {
        return Err(CommandError::new(Code::Forbidden, "this identity belongs to an earlier enrollment"));
    }
    let key_set_version = tx.key_set_version().await?;
    history::check_not_ahead(&mut tx, &node, hello, key_set_version).await?;
    if !tx.put_session(&session).await? {
        return Err(CommandError::new(Code::StateConflict, "a newer connection of this node is open"));
    }
    let before = node.clone();
    node.state = node.state.on(NodeEvent::Connect)?;
    node.clock_skew_seconds = skew;
    node.agent_version = Some(bounded(&hello.agent_version));
    let now = engine.ports().clock.now();
    node.agent_problem = agent_problem::of_hello(&node, hello, now);
    machine::record_machine(&mut tx, &mut node, bounded(&hello.machine_id), now, None).await?;
    if let Some(LedgerMark { id, written }) = &hello.ledger {
        node.ledger = Some(NodeLedger { id: bounded(id), written: *written, fence: hello.fence });
    }
    node.support.clone_from(&hello.support);
    if let Some(facts) = &mut node.facts {
        facts.addresses.clone_from(&hello.addresses);
    }
    if node != before {
        node = tx.update_node(&node).await?;
    }
    if node.state != before.state {
        let data = json!({ "name": node.name, "state": node.state });
        platform_event(&mut tx, EventKind::NodeActivated, "node", id.to_string(), None, data).await?;
    }
    clock::record_change(&mut tx, &node, before.clock_skew_seconds).await?;
    agent_problem::record_change(&mut tx, &node, before.agent_problem.as_ref()).await?;
    set_connectivity(engine, &mut tx, node, Connectivity::Connected).await?;
    let lacks_keys = hello.key_set_version < key_set_version;
    tx.commit().await?;
    if lacks_keys {
        engine.key_rotation().mark_dirty();
    }
    engine.node_connected(id);
    Ok(engine.node_reachability_changed(id, true).await?)
}

/// Records that a node's connection ended. Returns `false` if a newer connection has replaced it.
pub async fn disconnected(engine: &Engine, id: NodeId, connection: Uuid) -> Result<bool, CommandError> {
    let mut tx = engine.store().begin().await?;
    if !tx.end_session(id, connection).await? {
        return Ok(false);
    }
    let node = tx.node(id).await?;
    set_connectivity(engine, &mut tx, node, Connectivity::Stale).await?;
    tx.commit().await?;
    Ok(true)
}

/// Marks a disconnected node as unreachable after its time to return passed, unless another replica holds its channel.
pub async fn mark_unreachable(engine: &Engine, id: NodeId) -> Result<(), CommandError> {
    let mut tx = engine.store().begin().await?;
    if tx.session(id).await?.is_some() {
        return Ok(());
    }
    let node = tx.node(id).await?;
    set_connectivity(engine, &mut tx, node, Connectivity::Unreachable).await?;
    // At once with the row: a connection in between would find no mark to clear, and the member would stay marked.
    engine.change_reachability(&mut tx, id, false).await?;
    Ok(tx.commit().await?)
}

fn session(engine: &Engine, node: NodeId, connection: Uuid, hello: &Hello) -> SessionRecord {
    SessionRecord {
        node,
        connection,
        instance: bounded(&hello.instance),
        replica: engine.replica(),
        address: engine.endpoints().replica.clone(),
        since: engine.ports().clock.now(),
        key_set_version: hello.key_set_version,
        keys_given_at: None,
    }
}

/// Records a change of the node's connectivity, with its event.
async fn set_connectivity(
    engine: &Engine,
    tx: &mut Tx,
    mut node: NodeRecord,
    connectivity: Connectivity,
) -> Result<(), CommandError> {
    if node.connectivity == connectivity {
        return Ok(());
    }
    node.connectivity = connectivity;
    node.connectivity_since = engine.ports().clock.now();
    let node = tx.update_node(&node).await?;
    let waiting = waiting::of_node(&node, None);
    let data = json!({ "name": node.name, "connectivity": connectivity, "waiting": waiting });
    platform_event(tx, EventKind::NodeConnectivityChanged, "node", node.id.to_string(), None, data).await?;
    Ok(())
}

/// Records an event: two live agents use the same identity.
pub async fn identity_cloned(engine: &Engine, id: NodeId, newer: &Hello) -> Result<(), CommandError> {
    let mut tx = engine.store().begin().await?;
    let node = tx.node(id).await?;
    let data = json!({ "name": node.name, "machine_id": bounded(&newer.machine_id) });
    platform_event(&mut tx, EventKind::NodeIdentityCloned, "node", id.to_string(), None, data).await?;
    tx.commit().await?;
    Ok(())
}

/// Issues a certificate for a new key. The node's present certificate must be past half of its life, or of another authority than the
/// active one.
pub async fn renew(
    engine: &Engine,
    identity: &NodeIdentity,
    present: &[u8],
    ask: &RenewRequest,
) -> Result<String, CommandError> {
    let now = engine.ports().clock.now();
    clock::check_skew(ask.clock, now)?;
    let invalid = |error: &dyn std::fmt::Display| CommandError::new(Code::FieldInvalid, error.to_string()).about("csr");
    let ring = engine.keys().ring(&mut engine.store().read().await?).await?;
    let authority = ring.authorities().active();
    let is_of_another = !gpuaas_trust::names_issuer(present, authority.certificate());
    if !is_of_another && !gpuaas_trust::is_renewable(present, now).map_err(|error| invalid(&error))? {
        let detail = "the certificate has not reached half of its lifetime";
        return Err(CommandError::new(Code::RateLimited, detail).then("renew it at two thirds of its lifetime"));
    }
    let certificate = authority.issue_node(&ask.csr, identity, now).map_err(|error| invalid(&error))?;
    let correlation = CorrelationId::generate(&*engine.ports().clock, &*engine.ports().entropy);
    let mut tx = engine.store().begin().await?;
    let node = tx.node(identity.node).await?;
    if node.epoch != identity.epoch {
        return Err(CommandError::new(Code::Forbidden, "this identity belongs to an earlier enrollment"));
    }
    // Also covers a present certificate from before the control plane recorded keys.
    let of_present = gpuaas_trust::certified_key_sha256(present).map_err(|error| invalid(&error))?;
    if gpuaas_trust::requested_key_sha256(&ask.csr).map_err(|error| invalid(&error))? == of_present {
        return Err(StoreError::KeyReused.into());
    }
    certify_key(&mut tx, &ask.csr, identity.enrolled(), now).await?;
    audit_node(&mut tx, &node, AuditAction::NodeRenew, correlation, json!({ "epoch": node.epoch })).await?;
    tx.commit().await?;
    Ok(certificate)
}

async fn audit_node(
    tx: &mut Tx,
    node: &NodeRecord,
    action: AuditAction,
    correlation: CorrelationId,
    metadata: serde_json::Value,
) -> Result<(), CommandError> {
    let record = NewAudit::of_node(&node.name, action, format!("node/{}", node.name), metadata);
    Ok(tx.append_audit(&NewAudit { correlation: Some(correlation), ..record }).await?)
}

/// Shortens a text that a node reports about itself and removes characters that a terminal or the database does not take as text.
fn bounded(text: &str) -> String {
    one_line(text.to_owned(), NODE_TEXT_BYTES_MAX)
}

/// Records that a node presented a certificate of the active authority when it connected; `node` is its row at that moment. Not recorded at
/// issue, because the response may be lost: then the node would be refused with the certificate that it still has.
pub async fn record_certificate(engine: &Engine, node: &NodeRecord, certificate: &[u8]) -> Result<(), CommandError> {
    let authority = engine.keys().authority();
    let issuer = Some(authority.digest());
    if node.certified_by == issuer || !gpuaas_trust::names_issuer(certificate, authority.certificate()) {
        return Ok(());
    }
    let mut tx = engine.store().begin().await?;
    let mut present = tx.node(node.id).await?;
    if present.epoch != node.epoch {
        return Ok(());
    }
    present.certified_by = issuer;
    tx.update_node(&present).await?;
    tx.commit().await?;
    // The rotation of the previous authority may have waited for this node.
    engine.key_rotation().mark_dirty();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_texts_are_shortened_to_one_line() {
        assert_eq!(bounded("0.1\u{0}.0\n\u{1b}[31m"), "0.1.0 [31m");
        assert_eq!(bounded(&"u".repeat(5_000)).len(), NODE_TEXT_BYTES_MAX);
    }

    #[test]
    fn regions_and_labels_are_validated() {
        let labels = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert!(check(Some("eu-north.1"), &labels("rack/row", "7, left")).is_ok());
        for region in ["", "..", "-a", "a b", "a\u{0}", &"a".repeat(64)] {
            assert!(check(Some(region), &BTreeMap::new()).is_err(), "{region}");
        }
        for (name, value) in [("", "x"), ("a b", "x"), ("a", "\u{7}"), ("a", "\u{202e}"), ("a", &*"x".repeat(254))] {
            assert!(check(None, &labels(name, value)).is_err(), "{name} {value}");
        }
    }
}
