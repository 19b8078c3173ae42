//! Commands for certificate authorities: list, rotate, force a rotation's next step.

use gpuaas_model::{AuditAction, Code, KeyState, Permission};
use gpuaas_store::{AuthorityRecord, NodeRecord};
use serde_json::json;

use super::{
    audit,
    keys::{join_names, require_same_version},
    node::Forced,
    reimage,
};
use crate::{
    authorities::stored_authority,
    authority_rotation::{BlockingNodes, advance, announce, blocking_nodes, records, under_way},
    caller::Caller,
    engine::Engine,
    error::CommandError,
    restored::end_identity,
};

/// Maximum number of node names in an audit record, which also contains their total.
const NAMES_AUDITED_MAX: usize = 1_000;

/// An authority, and the condition for its next state.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorityView {
    /// The authority.
    pub authority: AuthorityRecord,
    /// Description of what the next state waits for; `None` if it waits for nothing, or no state follows automatically.
    pub waiting_for: Option<String>,
}

/// Lists every authority that ever existed, oldest first.
pub async fn list(engine: &Engine, caller: &Caller) -> Result<Vec<AuthorityView>, CommandError> {
    caller.require(Permission::PlatformRead)?;
    let (mut reader, now) = (engine.store().read().await?, engine.ports().clock.now());
    let authorities = records(&mut reader).await?;
    let mut views = Vec::new();
    for authority in &authorities {
        let what = match authority.state {
            KeyState::Staged => Some("nodes to accept the new authority"),
            KeyState::Grace => Some("nodes to renew their certificates"),
            KeyState::Active | KeyState::Retired | KeyState::Revoked => None,
        };
        let waiting_for = match what {
            Some(what) => waiting_for(what, &blocking_nodes(&mut reader, authority, &authorities, now).await?),
            None => None,
        };
        views.push(AuthorityView { authority: authority.clone(), waiting_for });
    }
    Ok(views)
}

fn waiting_for(what: &str, blocking: &BlockingNodes) -> Option<String> {
    let names = |nodes: &[NodeRecord]| join_names(&nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>());
    let strings = || format!("enrollment strings to be used or to expire: {}", names(&blocking.enrolling));
    match (blocking.nodes.is_empty(), blocking.enrolling.is_empty()) {
        (true, true) => None,
        (true, false) => Some(strings()),
        (false, true) => Some(format!("{what}: {}", names(&blocking.nodes))),
        (false, false) => Some(format!("{what}: {}; {}", names(&blocking.nodes), strings())),
    }
}

/// Creates an authority that will replace the active one. The rotation continues automatically; [`list`] and events show its progress.
pub async fn rotate(engine: &Engine, caller: &Caller) -> Result<AuthorityRecord, CommandError> {
    caller.require(Permission::KeysWrite)?;
    let mut tx = engine.store().begin().await?;
    require_same_version(engine, &mut tx).await?;
    if let Some(authority) = under_way(&records(&mut tx).await?) {
        let detail = format!("a rotation is under way: authority {} is {}", authority.id, authority.state);
        let next = "wait for it: `gpuaas keys list authority` shows its progress";
        return Err(CommandError::new(Code::StateConflict, detail).then(next));
    }
    tx.remove_forged_authorities().await?;
    let (version, now) = (tx.key_set_version().await? + 1, tx.database_now().await?);
    let internal = |error: &dyn std::fmt::Display| CommandError::new(Code::Internal, error.to_string());
    let ring = engine.keys().ring(&mut tx).await?;
    let made = ring.authorities().active().successor(now).map_err(|error| internal(&error))?;
    let made = stored_authority(engine.keys().sealing(), &made, KeyState::Staged, version, now);
    let mut made = made.map_err(|error| internal(&error))?;
    made.authority.correlation = Some(caller.correlation);
    tx.insert_authority(&made).await?;
    announce(&mut tx, &made.authority).await?;
    let target = format!("authority/{}", made.authority.id);
    audit(&mut tx, caller, AuditAction::AuthorityRotate, target, None, json!({ "version": version })).await?;
    tx.commit().await?;
    Ok(made.authority)
}

/// The authority, in its expected state, that is forced to its next state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedAuthority {
    /// The authority's id.
    pub authority: String,
    /// The expected state, `staged` or `grace`, so that a repeated or late request takes no further step.
    pub state: KeyState,
}

/// Takes the next step of the rotation without the nodes that block it. Returns the authority whose state changed. A node left behind when
/// the old authority is retired loses its identity and must enroll again.
pub async fn force(
    engine: &Engine,
    caller: &Caller,
    awaited: &ExpectedAuthority,
    forced: &Forced,
) -> Result<AuthorityRecord, CommandError> {
    caller.require(Permission::KeysWrite)?;
    reimage::check_reason(forced)?;
    let (mut tx, now) = (engine.store().begin().await?, engine.ports().clock.now());
    let authorities = records(&mut tx).await?;
    let authority = under_way(&authorities).filter(|of| of.id == awaited.authority && of.state == awaited.state);
    let Some(authority) = authority else {
        let detail = format!("authority {} is not in state {} now", awaited.authority, awaited.state);
        let next = "see what the rotation waits for: gpuaas keys list authority";
        return Err(CommandError::new(Code::StateConflict, detail).then(next));
    };
    let without = blocking_nodes(&mut tx, authority, &authorities, now).await?;
    let names = without.names();
    let named: Vec<_> = names.iter().take(NAMES_AUDITED_MAX).collect();
    let data = json!({ "reason": forced.reason, "state": authority.state, "nodes": names.len(), "without": named });
    audit(&mut tx, caller, AuditAction::AuthorityForce, format!("authority/{}", authority.id), None, data).await?;
    if authority.state == KeyState::Grace {
        for node in without.enrolling {
            tx.expire_enrollments(node.id, now).await?;
        }
        for node in without.nodes {
            let epoch = node.epoch + 1;
            end_identity(&mut tx, node, epoch, now).await?;
        }
    }
    let changed = advance(&mut tx).await?;
    let changed = changed.ok_or_else(|| CommandError::new(Code::Internal, "the rotation ended in the meantime"))?;
    caller.commit(tx).await?;
    Ok(changed)
}
