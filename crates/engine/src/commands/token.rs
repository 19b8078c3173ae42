//! API tokens: shown once, stored as a digest.

use std::time::Duration;

use gpuaas_model::{
    AuditAction, Code, EventKind, Line, OwnActor, Permission, Principal, ProjectId, Role, Timestamp, TokenId,
};
use gpuaas_store::{Reader, StoreError, TokenRecord, Tx};
use gpuaas_trust::SecretText;
use serde_json::json;

use super::audit;
use crate::{
    caller::Caller,
    engine::Engine,
    error::{CommandError, check_line},
    keys::Keys,
    port::Ports,
    record::credential_event,
};

/// Prefix of every token's text.
pub const PREFIX: &str = "gpuaas";
/// Default lifetime of a token, in seconds.
const TTL_SECONDS: u64 = 30 * 24 * 3_600;
/// Longest lifetime of a token, in seconds.
const TTL_SECONDS_MAX: u64 = 365 * 24 * 3_600;
/// Maximum number of valid tokens per project, including those of its service accounts; the same limit applies to the platform's own.
const TOKENS_MAX: u64 = 1_000;

/// Returns whether a text is a token that this control plane issued, valid or not. Other texts are refused without a database query.
pub fn is_issued(keys: &Keys, text: &str) -> bool {
    keys.tokens().has_valid_code(PREFIX, text)
}

/// Returns the holder of a token, with the token's rights. Whether the token is valid is not checked.
pub fn holder(token: &TokenRecord) -> Principal {
    Principal {
        token: token.id,
        name: token.name.clone(),
        role: token.role,
        project: token.project,
        service_account: token.service_account,
        workload: token.workload,
    }
}

/// Properties of a new token.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The holder's name in the audit log.
    pub name: String,
    /// The role, which defines the permissions.
    pub role: Role,
    /// The project that the token belongs to; required for project roles.
    pub project: Option<ProjectId>,
    /// Lifetime in seconds; `None` for [`TTL_SECONDS`].
    pub ttl_seconds: Option<u64>,
}

/// Creates a token. Its text is returned only here.
pub async fn create(
    engine: &Engine,
    caller: &Caller,
    new: NewToken,
) -> Result<(TokenRecord, SecretText), CommandError> {
    caller.require(Permission::TokensWrite)?;
    if !caller.principal.role.may_grant(new.role) {
        let detail = format!("a {} may not create a token with the role {}", caller.principal.role, new.role);
        return Err(CommandError::new(Code::Forbidden, detail).about("role"));
    }
    check(&new)?;
    if let Some(project) = new.project {
        caller.require_visible(project, "project", project)?;
    }
    let (token, secret) = generate(engine.keys(), engine.ports(), new);
    let mut tx = engine.store().begin().await?;
    if let Some(project) = token.project {
        tx.project(project).await?;
    }
    check_token_limit(&mut tx, token.project, token.created_at).await?;
    insert(&mut tx, caller, &token).await?;
    tx.commit().await?;
    Ok((token, secret))
}

/// Generates a token and its text, without storing it.
pub(super) fn generate(keys: &Keys, ports: &Ports, new: NewToken) -> (TokenRecord, SecretText) {
    let secret = keys.tokens().generate(PREFIX, &*ports.entropy);
    let now = ports.clock.now();
    let token = TokenRecord {
        id: TokenId::generate(&*ports.clock, &*ports.entropy),
        name: new.name,
        sha256: secret.sha256,
        role: new.role,
        project: new.project,
        created_at: now,
        service_account: None,
        workload: None,
        expires_at: Some(now.plus(Duration::from_secs(new.ttl_seconds.unwrap_or(TTL_SECONDS)))),
        revoked_at: None,
        is_bootstrap: false,
    };
    (token, secret.text)
}

/// Adds a token with its event and audit record.
pub(super) async fn insert(tx: &mut Tx, caller: &Caller, token: &TokenRecord) -> Result<(), StoreError> {
    tx.insert_token(token).await?;
    let data = json!({ "name": token.name, "role": token.role });
    let subject = ("token", token.id.to_string());
    credential_event(tx, token.project, EventKind::TokenCreated, subject, caller.correlation, data.clone()).await?;
    audit(tx, caller, AuditAction::TokenCreate, format!("token/{}", token.id), token.project, data).await
}

/// Revokes a token. Revoking twice has the effect of once.
pub async fn revoke(engine: &Engine, caller: &Caller, id: TokenId) -> Result<TokenRecord, CommandError> {
    caller.require(Permission::TokensWrite)?;
    let mut tx = engine.store().begin().await?;
    let token = tx.token(id).await?;
    let seen = token.project.map_or(caller.principal.role.is_of_platform(), |project| caller.principal.sees(project));
    if !seen {
        return Err(CommandError::not_found("token", id));
    }
    if token.revoked_at.is_some() {
        return Ok(token);
    }
    let token = tx.revoke_token(id, engine.ports().clock.now()).await?;
    let subject = ("token", id.to_string());
    credential_event(&mut tx, token.project, EventKind::TokenRevoked, subject, caller.correlation, json!({})).await?;
    audit(&mut tx, caller, AuditAction::TokenRevoke, format!("token/{id}"), token.project, json!({})).await?;
    caller.commit(tx).await?;
    Ok(token)
}

/// Refuses another token for a project, or for the platform, at the limit of valid tokens.
pub(super) async fn check_token_limit(
    reader: &mut Reader,
    project: Option<ProjectId>,
    now: Timestamp,
) -> Result<(), CommandError> {
    if reader.valid_token_count(project, now).await? < TOKENS_MAX {
        return Ok(());
    }
    let of = if project.is_some() { "project" } else { "platform" };
    Err(CommandError::new(Code::LimitReached, format!("the {of} has {TOKENS_MAX} tokens, which is the maximum"))
        .then("revoke tokens that are not needed: `gpuaas token list`, `gpuaas token revoke ID`"))
}

/// Refuses a name under which the audit log records the platform's own actions.
pub(super) fn check_not_reserved(name: &str) -> Result<(), CommandError> {
    if !OwnActor::is_reserved(name) {
        return Ok(());
    }
    let detail = format!("{name} is reserved for the platform in the audit log");
    Err(CommandError::new(Code::FieldInvalid, detail).about("name").then("choose another name"))
}

pub(super) fn check(new: &NewToken) -> Result<(), CommandError> {
    check_line(Line::TOKEN_NAME, &new.name, "name")?;
    if new.name.starts_with(TokenRecord::SERVICE_ACCOUNT_PREFIX) {
        let detail =
            format!("names that begin with {} belong to service accounts", TokenRecord::SERVICE_ACCOUNT_PREFIX);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("name").then("create a service account"));
    }
    check_not_reserved(&new.name)?;
    if new.role.is_of_workload() {
        let detail = format!("only a service account has the role {}, for one workload", new.role);
        let next = format!("create one: gpuaas service-account create NAME --role {} --workload WORKLOAD", new.role);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("role").then(next));
    }
    let wrong = match (new.role.is_of_platform(), new.project) {
        (false, None) => Some((format!("a {} needs a project", new.role), "name one: --project NAME")),
        (true, Some(_)) => Some((
            format!("a {} is not limited to a project", new.role),
            "leave out the project (--project, GPUAAS_PROJECT)",
        )),
        (false, Some(_)) | (true, None) => None,
    };
    if let Some((detail, next)) = wrong {
        return Err(CommandError::new(Code::FieldInvalid, detail).about("project").then(next));
    }
    if new.ttl_seconds.is_some_and(|seconds| seconds == 0 || seconds > TTL_SECONDS_MAX) {
        let detail = format!("a token is valid for 1 second to {} days", TTL_SECONDS_MAX / 86_400);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("ttl_seconds"));
    }
    Ok(())
}
