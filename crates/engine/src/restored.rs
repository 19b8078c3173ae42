//! Revokes the credentials in a restored backup. Some of them were revoked after the backup was made, and its rows do not show which. So
//! all of them are revoked, once, before the control plane serves from a restored store.

use gpuaas_model::{
    AllocationId, AuditAction, Connectivity, EventKind, KeyEvent, KeyState, NodeEvent, NodeState, ProjectId, Timestamp,
};
use gpuaas_store::{NodeRecord, RESTORED, Store, Tx, raised_number};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    key_rotation::{announce, change},
    keys::{Keys, KeysError},
    port::Ports,
    record::{audit_own, platform_event},
    waiting,
};

/// The result of revoking a restored store's credentials: what an operator must create again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedCredentials {
    /// Number of valid tokens that were revoked, including those of service accounts.
    pub tokens: u64,
    /// The id of the key that signs tasks from now on; every earlier one is revoked.
    pub signing_key: String,
    /// Nodes whose identity has ended, by name; each must enroll again.
    pub nodes: Vec<RevokedNode>,
}

/// A node that must enroll again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedNode {
    /// The node's name.
    pub name: String,
    /// The node's new state.
    pub state: NodeState,
    /// The project and allocation that held the node when the backup was made; the node may have changed hands since.
    pub held_by: Option<(ProjectId, AllocationId)>,
    /// The name of that project.
    #[serde(default)]
    pub project_name: Option<String>,
}

/// Revokes all credentials of a restored store. Returns `None` if the store was not restored, or this was done already.
pub async fn revoke_restored_credentials(
    store: &Store,
    keys: &Keys,
    ports: &Ports,
) -> Result<Option<RevokedCredentials>, KeysError> {
    let mut tx = store.begin().await?;
    if tx.setting(RESTORED).await?.is_none() {
        return Ok(None);
    }
    let now = ports.clock.now();
    let tokens = tx.delete_tokens(now).await?;
    tx.remove_enrollments().await?;
    let signing_key = replace_signing_keys(&mut tx, keys, ports, now).await?;
    let nodes = end_identities(&mut tx, now).await?;
    let metadata = json!({ "tokens": tokens, "signing_key": signing_key, "nodes": nodes.len() });
    audit_own(&mut tx, AuditAction::ServerCredentialsEnd, "control-plane".to_owned(), None, metadata).await?;
    tx.remove_setting(RESTORED).await?;
    tx.commit().await?;
    Ok(Some(RevokedCredentials { tokens, signing_key, nodes }))
}

/// Revokes every key, at a version that no agent can have seen, and creates an active one.
async fn replace_signing_keys(tx: &mut Tx, keys: &Keys, ports: &Ports, now: Timestamp) -> Result<String, KeysError> {
    tx.remove_forged_signing_keys().await?;
    let version = raised_number(tx.key_set_version().await?, now);
    for stored in tx.signing_keys().await? {
        if stored.key.state.is_accepted() {
            change(tx, stored.key, KeyEvent::Revoke, version, now).await?;
        }
    }
    let made = keys.generate_signing_key(KeyState::Active, version, now, &*ports.entropy);
    let made = made.map_err(|error| KeysError::Unusable(error.to_string()))?;
    tx.insert_signing_key(&made).await?;
    announce(tx, &made.key).await?;
    let target = format!("signing-key/{}", made.key.key_id);
    audit_own(tx, AuditAction::KeyActivate, target, None, json!({ "version": version })).await?;
    Ok(made.key.key_id)
}

/// Raises every node's epoch above any value that it can have reached since the backup.
async fn end_identities(tx: &mut Tx, now: Timestamp) -> Result<Vec<RevokedNode>, KeysError> {
    let mut ended = Vec::new();
    for node in tx.every_node(|node| node.state != NodeState::Retired).await? {
        let epoch = raised_number(node.epoch, now);
        ended.extend(end_identity(tx, node, epoch, now).await?);
    }
    ended.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(ended)
}

/// Ends a node's identity: only enrollments of `epoch` are valid from now on. Returns `None` for a node that had no identity.
pub(crate) async fn end_identity(
    tx: &mut Tx,
    mut node: NodeRecord,
    epoch: u64,
    now: Timestamp,
) -> Result<Option<RevokedNode>, KeysError> {
    let had_identity = !matches!(node.state, NodeState::Registered | NodeState::NeedsReimage);
    if had_identity {
        let ended = node.state.on(NodeEvent::IdentityEnded);
        node.state = ended.map_err(|error| KeysError::Unusable(error.to_string()))?;
    }
    node.epoch = epoch;
    if node.connectivity != Connectivity::Never {
        (node.connectivity, node.connectivity_since) = (Connectivity::Unreachable, now);
    }
    let node = tx.update_node(&node).await?;
    let data = json!({ "name": node.name, "state": node.state, "waiting": waiting::of_node(&node, None) });
    platform_event(tx, EventKind::NodeStateChanged, "node", node.id.to_string(), None, data).await?;
    let held_by = tx.open_allocation_of(node.id).await?.map(|held| (held.project, held.id));
    let project_name = match held_by {
        Some((project, _)) => Some(tx.project(project).await?.name.to_string()),
        None => None,
    };
    Ok(had_identity.then(|| RevokedNode { name: node.name.to_string(), state: node.state, held_by, project_name }))
}
