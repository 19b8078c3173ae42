//! Rotates certificate authorities without ending a connection.
//!
//! A new authority is *staged*: the present authority certifies it and the key set names it, so that every node trusts both before either
//! issues anything new. It becomes *active* once every node that is connected, or that lost its connection less than 15 s ago, has the set.
//! (A node that connects later trusts the server through the certificate that the old authority issued for the new one, and gets the set
//! then.) The old authority is in *grace* until every node has presented a certificate of the new one and no enrollment string that pins
//! the old one is valid any more. Then it is *retired*: its certificates are void, and its key is erased.
//!
//! Authorities share the set of the task-signing keys ([`crate::key_rotation`]): one version, one signature, one file on the node, so that
//! no node holds keys signed by an authority that it does not know. Unlike a key, an authority waits without a time limit, unless an
//! operator forces it.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use gpuaas_model::{
    AuditAction, Connectivity, EnrolledNode, EventKind, KeyEvent, KeyState, NodeId, NodeState, Timestamp,
};
use gpuaas_store::{AuthorityRecord, NodeRecord, Reader, StoreError, Tx};
use gpuaas_trust::{NODE_CERTIFICATE_LIFE, RENEWAL_GRACE};
use serde_json::json;

use crate::{
    engine::Engine,
    key_rotation::SWEEP_EVERY,
    keys::KeysError,
    record::{audit_own, platform_event},
};

/// Minimum interval between checks of all nodes while certificates are renewed.
const NODE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Engine {
    /// Takes the next step of an authority's rotation if nothing blocks it. Returns the time until the next check.
    pub(crate) async fn advance_authorities(&self) -> Result<Duration, KeysError> {
        let now = self.ports().clock.now();
        let (is_wanted, again) = self.key_rotation().try_begin_node_check(now, NODE_CHECK_INTERVAL);
        if !is_wanted {
            return Ok(again);
        }
        // Checks on a reader first, because the check may be slow and mostly finds nothing to do.
        let mut reader = self.store().read().await?;
        let authorities = records(&mut reader).await?;
        let Some(authority) = under_way(&authorities) else {
            self.key_rotation().reset_node_check();
            return Ok(SWEEP_EVERY);
        };
        let is_blocked = !blocking_nodes(&mut reader, authority, &authorities, now).await?.is_empty();
        drop(reader);
        if is_blocked {
            return Ok(SWEEP_EVERY);
        }
        let mut tx = self.store().begin().await?;
        let authorities = records(&mut tx).await?;
        if let Some(authority) = under_way(&authorities)
            && blocking_nodes(&mut tx, authority, &authorities, now).await?.is_empty()
        {
            advance(&mut tx).await?;
            tx.commit().await?;
            self.key_rotation().mark_dirty();
        }
        Ok(SWEEP_EVERY)
    }
}

/// Every authority that ever existed, oldest first.
pub(crate) async fn records(reader: &mut Reader) -> Result<Vec<AuthorityRecord>, StoreError> {
    Ok(reader.authorities().await?.into_iter().map(|stored| stored.authority).collect())
}

/// The authority that is staged or in grace.
pub(crate) fn under_way(authorities: &[AuthorityRecord]) -> Option<&AuthorityRecord> {
    authorities.iter().find(|authority| matches!(authority.state, KeyState::Staged | KeyState::Grace))
}

/// The nodes that block an authority's next state.
#[derive(Debug, Default)]
pub(crate) struct BlockingNodes {
    /// Nodes that have not taken the key set, or have no certificate of the active authority.
    pub(crate) nodes: Vec<NodeRecord>,
    /// Nodes whose enrollment string pins the old authority and is still valid.
    pub(crate) enrolling: Vec<NodeRecord>,
}

impl BlockingNodes {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.enrolling.is_empty()
    }

    /// The names of all these nodes, each once.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.nodes.iter().chain(&self.enrolling).map(|node| node.name.to_string()).collect()
    }
}

/// Finds the nodes that block an authority's next state.
pub(crate) async fn blocking_nodes(
    reader: &mut Reader,
    authority: &AuthorityRecord,
    all: &[AuthorityRecord],
    now: Timestamp,
) -> Result<BlockingNodes, StoreError> {
    let mut blocking = BlockingNodes::default();
    match authority.state {
        KeyState::Staged => blocking.nodes = without_key_set(reader, authority.version).await?,
        KeyState::Grace => {
            let active = all.iter().find(|authority| authority.state == KeyState::Active);
            let active = active.map(|active| active.id.as_str()).unwrap_or_default();
            blocking.nodes = certified_by_another(reader, active, now).await?;
            for token in reader.open_enrollments(active, now).await? {
                blocking.enrolling.push(reader.node(token.node).await?);
            }
        }
        KeyState::Active | KeyState::Retired | KeyState::Revoked => {}
    }
    Ok(blocking)
}

/// Nodes that are connected, or lost their connection a moment ago, and have not taken the given version of the key set.
async fn without_key_set(reader: &mut Reader, version: u64) -> Result<Vec<NodeRecord>, StoreError> {
    let sessions = reader.sessions().await?.into_iter();
    let taken: HashMap<NodeId, u64> = sessions.map(|session| (session.node, session.key_set_version)).collect();
    let lacks_it = |node: &NodeRecord| match taken.get(&node.id) {
        Some(taken) => *taken < version,
        // For example, a node whose replica ended.
        None => may_connect(node) && matches!(node.connectivity, Connectivity::Connected | Connectivity::Stale),
    };
    reader.every_node(lacks_it).await
}

/// Nodes that may hold a certificate that they can use or renew, and are not known to have one of the active authority.
async fn certified_by_another(
    reader: &mut Reader,
    active: &str,
    now: Timestamp,
) -> Result<Vec<NodeRecord>, StoreError> {
    let issued = reader.newest_node_keys().await?;
    // Counts issued certificates, not connections: an attacker with the stolen key could stay connected and block the rotation forever.
    let may_hold_one = |node: &NodeRecord| {
        let newest = issued.get(&EnrolledNode { node: node.id, epoch: node.epoch });
        may_connect(node) && newest.is_some_and(|at| at.plus(NODE_CERTIFICATE_LIFE + RENEWAL_GRACE) > now)
    };
    reader.every_node(|node| may_hold_one(node) && node.certified_by.as_deref() != Some(active)).await
}

fn may_connect(node: &NodeRecord) -> bool {
    matches!(node.state, NodeState::Enrolled | NodeState::Active)
}

/// Takes the next step of the rotation without waiting for nodes. Returns `None` if no rotation is in progress.
pub(crate) async fn advance(tx: &mut Tx) -> Result<Option<AuthorityRecord>, KeysError> {
    let authorities = records(tx).await?;
    let Some(authority) = under_way(&authorities).cloned() else { return Ok(None) };
    let (version, now) = (tx.key_set_version().await? + 1, tx.database_now().await?);
    if authority.state == KeyState::Grace {
        return Ok(Some(change(tx, authority, KeyEvent::Retire, version, now).await?));
    }
    // In the opposite order two authorities would be active for a moment, which the rows do not allow.
    if let Some(active) = authorities.into_iter().find(|authority| authority.state == KeyState::Active) {
        change(tx, active, KeyEvent::Supersede, version, now).await?;
    }
    Ok(Some(change(tx, authority, KeyEvent::Activate, version, now).await?))
}

/// Writes an authority's next state, with event and audit record.
async fn change(
    tx: &mut Tx,
    mut authority: AuthorityRecord,
    event: KeyEvent,
    version: u64,
    now: Timestamp,
) -> Result<AuthorityRecord, KeysError> {
    authority.state = authority.state.on(event).map_err(|error| KeysError::Unusable(error.to_string()))?;
    (authority.version, authority.changed_at) = (version, now);
    tx.update_authority(&authority).await?;
    announce(tx, &authority).await?;
    let action = match event {
        KeyEvent::Activate => AuditAction::AuthorityActivate,
        KeyEvent::Supersede => AuditAction::AuthoritySupersede,
        KeyEvent::Retire | KeyEvent::Revoke => AuditAction::AuthorityRetire,
    };
    let target = format!("authority/{}", authority.id);
    audit_own(tx, action, target, authority.correlation, json!({ "version": version })).await?;
    Ok(authority)
}

/// Announces an authority's state to subscribers and to every replica.
pub(crate) async fn announce(tx: &mut Tx, authority: &AuthorityRecord) -> Result<(), StoreError> {
    let data = json!({ "state": authority.state, "version": authority.version });
    let kind = EventKind::AuthorityStateChanged;
    platform_event(tx, kind, "authority", authority.id.clone(), authority.correlation, data).await
}
