//! The one-time token of the first administrator: exchanged once, within [`TTL`], for a platform admin's token. It permits nothing else.
//!
//! Guarantees: at most one of them is valid at a time; of two concurrent exchanges one succeeds; the exchanged token is revoked in the same
//! transaction.
//!
//! Deliberately absent: the storage of the token's text, and the decision when one may be created (`server`).

use std::time::Duration;

use gpuaas_model::{AuditAction, Code, CorrelationId, EventKind, OwnActor, Principal, Role, Timestamp, TokenId};
use gpuaas_store::{NewAudit, StoreError, TokenRecord, Tx};
use gpuaas_trust::SecretText;
use serde_json::{Value, json};

use super::{
    audit,
    token::{self, NewToken, PREFIX},
};
use crate::{caller::Caller, engine::Engine, error::CommandError, keys::Keys, port::Ports, record::platform_event};

/// Lifetime of a one-time token: long enough to install a control plane and log in, too short for a copy in a disk image or a log to be
/// useful. Later, an operator creates another one on the machine.
pub const TTL: Duration = Duration::from_secs(3_600);
/// How to get another one-time token.
const RECOVER_HINT: &str = "create another on the control plane's machine: gpuaas server recover-admin";

/// Properties of the first administrator's own token.
#[derive(Clone, Debug)]
pub struct NewAdmin {
    /// The holder's name in the audit log.
    pub name: String,
    /// Lifetime in seconds; `None` for the default of API tokens.
    pub ttl_seconds: Option<u64>,
}

/// Generates a one-time token and its text, without storing it. [`insert`] makes it valid.
pub fn generate(keys: &Keys, ports: &Ports) -> (TokenRecord, SecretText) {
    let secret = keys.tokens().generate(PREFIX, &*ports.entropy);
    let now = ports.clock.now();
    let token = TokenRecord {
        id: TokenId::generate(&*ports.clock, &*ports.entropy),
        name: OwnActor::Bootstrap.to_string(),
        sha256: secret.sha256,
        role: Role::PlatformAdmin,
        project: None,
        service_account: None,
        workload: None,
        created_at: now,
        expires_at: Some(now.plus(TTL)),
        revoked_at: None,
        is_bootstrap: true,
    };
    (token, secret.text)
}

/// Adds a one-time token with its event and audit record, and revokes earlier ones.
pub async fn insert(
    tx: &mut Tx,
    token: &TokenRecord,
    actor: OwnActor,
    action: AuditAction,
    metadata: Value,
) -> Result<(), StoreError> {
    for earlier in tx.all_tokens().await? {
        if earlier.is_bootstrap && earlier.revoked_at.is_none() {
            withdraw(tx, earlier.id, token, None).await?;
        }
    }
    tx.insert_token(token).await?;
    let data = json!({ "name": token.name, "role": token.role });
    platform_event(tx, EventKind::TokenCreated, "token", token.id.to_string(), None, data).await?;
    tx.append_audit(&NewAudit::of_own(actor, action, format!("token/{}", token.id), metadata)).await
}

/// Exchanges the caller's one-time token for a platform admin's token. The text of the new token is returned only here.
pub async fn exchange(
    engine: &Engine,
    caller: &Caller,
    new: NewAdmin,
) -> Result<(TokenRecord, SecretText), CommandError> {
    let new = NewToken { name: new.name, role: Role::PlatformAdmin, project: None, ttl_seconds: new.ttl_seconds };
    token::check(&new)?;
    let (made, secret) = token::generate(engine.keys(), engine.ports(), new);
    // The write lock is held until the end: the second of two exchanges finds the token revoked.
    let mut tx = engine.store().begin().await?;
    let spent = tx.token(caller.principal.token).await?;
    check_usable(&spent, made.created_at)?;
    // Ignores the limit on tokens: an operator who recovers a control plane must get in.
    token::insert(&mut tx, caller, &made).await?;
    withdraw(&mut tx, spent.id, &made, Some(caller.correlation)).await?;
    let data = json!({ "name": made.name, "token": made.id, "expires_at": made.expires_at.map(|at| at.to_string()) });
    audit(&mut tx, caller, AuditAction::AdminBootstrap, format!("token/{}", spent.id), None, data).await?;
    tx.commit().await?;
    Ok((made, secret))
}

/// The principal of a one-time token, which belongs to no particular person yet.
///
/// Refuses a token that is not a one-time token, was exchanged or revoked, or has expired.
pub fn holder(token: &TokenRecord, now: Timestamp) -> Result<Principal, CommandError> {
    check_usable(token, now)?;
    Ok(token::holder(token))
}

fn check_usable(token: &TokenRecord, now: Timestamp) -> Result<(), CommandError> {
    if !token.is_bootstrap {
        let detail = "this is not a one-time token, so it cannot be exchanged";
        return Err(
            CommandError::new(Code::Forbidden, detail).then("create a token: gpuaas token create NAME --role ROLE")
        );
    }
    if token.revoked_at.is_some() {
        let detail = "this one-time token was already exchanged, or a newer one replaced it";
        return Err(CommandError::new(Code::OneTimeTokenUsed, detail).then(RECOVER_HINT));
    }
    if token.expires_at.is_none_or(|at| at <= now) {
        return Err(CommandError::new(Code::Unauthenticated, "this one-time token has expired").then(RECOVER_HINT));
    }
    Ok(())
}

/// Revokes a one-time token, replaced by another token.
async fn withdraw(
    tx: &mut Tx,
    id: TokenId,
    in_favour_of: &TokenRecord,
    correlation: Option<CorrelationId>,
) -> Result<(), StoreError> {
    tx.revoke_token(id, in_favour_of.created_at).await?;
    platform_event(tx, EventKind::TokenRevoked, "token", id.to_string(), correlation, json!({})).await
}
