//! How one certificate authority follows another without a connection that ends for it.
//!
//! A new authority is *staged*: certified by the present one and named by the key set, so that every node trusts both before either issues anything
//! new. It becomes *active* once every connected node has the set (one that connects later believes the server by the certificate that the old
//! authority gave the new one, and is given the set then), and the one before is in *grace* until every node has a certificate of the new one. Then
//! it is *retired*: its certificates count no more, and its key is erased.
//!
//! The set is the one of the task-signing keys ([`crate::key_rotation`]): one version, one signature, one file on the node, so that no node ever holds
//! keys that are signed by an authority it does not know. Unlike a key, an authority waits for as long as it takes, or until an operator forces it.

use gpuaas_model::{AuditAction, Connectivity, EventKind, KeyEvent, KeyState, NodeState, Timestamp};
use gpuaas_store::{AuthorityRecord, NodeFilter, NodeRecord, Page, Reader, StoreError, Tx};
use gpuaas_trust::{NODE_CERTIFICATE_LIFE, RENEWAL_GRACE};
use serde_json::json;

use crate::{
    engine::Engine,
    key_rotation::behind,
    keys::KeysError,
    record::{audit_own, platform_event},
};

impl Engine {
    /// Takes the next step of an authority's rotation if nobody holds it up.
    pub(crate) async fn advance_authorities(&self) -> Result<(), KeysError> {
        let now = self.ports().clock.now();
        // Looked at on a reader first: this may be long, and is in vain as often as not.
        if !is_due(&mut self.store().read().await?, now).await? {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        if is_due(&mut tx, now).await? && step(&mut tx).await?.is_some() {
            tx.commit().await?;
            self.key_tending().doubt();
        }
        Ok(())
    }
}

async fn is_due(reader: &mut Reader, now: Timestamp) -> Result<bool, StoreError> {
    let authorities = records(reader).await?;
    match under_way(&authorities) {
        Some(authority) => Ok(held_up_by(reader, authority, &authorities, now).await?.is_empty()),
        None => Ok(false),
    }
}

/// Every authority there ever was, oldest first.
pub(crate) async fn records(reader: &mut Reader) -> Result<Vec<AuthorityRecord>, StoreError> {
    Ok(reader.authorities().await?.into_iter().map(|stored| stored.authority).collect())
}

/// The authority whose next state is to come by itself.
pub(crate) fn under_way(authorities: &[AuthorityRecord]) -> Option<&AuthorityRecord> {
    authorities.iter().find(|authority| matches!(authority.state, KeyState::Staged | KeyState::Grace))
}

/// The nodes, by name, that hold up an authority's next state.
pub(crate) async fn held_up_by(
    reader: &mut Reader,
    authority: &AuthorityRecord,
    all: &[AuthorityRecord],
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    match authority.state {
        KeyState::Staged => {
            for session in behind(reader, authority.version).await? {
                names.push(reader.node(session.node).await?.name.to_string());
            }
        }
        KeyState::Grace => {
            let active = all.iter().find(|authority| authority.state == KeyState::Active);
            let mut page = Page::default();
            loop {
                let nodes = reader.nodes(&NodeFilter { page: page.clone(), ..NodeFilter::default() }).await?;
                let Some(last) = nodes.last() else { break };
                page.after = Some(last.id.to_string());
                let lacks = |node: &&NodeRecord| {
                    has_identity(node, now) && node.certified_by.as_ref() != active.map(|active| &active.id)
                };
                names.extend(nodes.iter().filter(lacks).map(|node| node.name.to_string()));
            }
        }
        KeyState::Active | KeyState::Retired | KeyState::Revoked => {}
    }
    Ok(names)
}

/// Whether a node may have a certificate that is good for anything: one that was away for longer than any may be renewed has none.
fn has_identity(node: &NodeRecord, now: Timestamp) -> bool {
    let may_connect = matches!(node.state, NodeState::Enrolled | NodeState::Active | NodeState::InMaintenance);
    let is_away = node.connectivity != Connectivity::Connected;
    may_connect && !(is_away && node.connectivity_since.plus(NODE_CERTIFICATE_LIFE + RENEWAL_GRACE) <= now)
}

/// Takes the next step of the rotation that is under way, whoever it waits for. `None` when there is none.
pub(crate) async fn step(tx: &mut Tx) -> Result<Option<AuthorityRecord>, KeysError> {
    let authorities = records(tx).await?;
    let Some(authority) = under_way(&authorities).cloned() else { return Ok(None) };
    let (version, now) = (tx.key_set_version().await? + 1, tx.database_now().await?);
    if authority.state == KeyState::Grace {
        return Ok(Some(change(tx, authority, KeyEvent::Retire, version, now).await?));
    }
    // The other way round two would be active for a moment, which the rows do not allow.
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

/// Tells those who watch, and every replica, what an authority is now.
pub(crate) async fn announce(tx: &mut Tx, authority: &AuthorityRecord) -> Result<(), StoreError> {
    let data = json!({ "state": authority.state, "version": authority.version });
    let kind = EventKind::AuthorityStateChanged;
    platform_event(tx, kind, "authority", authority.id.clone(), authority.correlation, data).await
}
