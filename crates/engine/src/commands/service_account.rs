//! Service accounts: programs that act for a project, with short-lived tokens.

use std::time::Duration;

use gpuaas_model::{AuditAction, Code, EventKind, Name, Permission, ProjectId, Role, ServiceAccountId, TokenId};
use gpuaas_store::{Page, ServiceAccountRecord, TokenRecord};
use gpuaas_trust::SecretText;
use serde_json::json;

use super::{
    audit,
    token::{PREFIX, check_not_reserved, check_token_limit},
};
use crate::{caller::Caller, engine::Engine, error::CommandError, record::platform_event};

/// Default lifetime of a token, in seconds.
const TTL_SECONDS: u64 = 3_600;
/// Longest lifetime of a token, in seconds: the limit for a leaked one.
const TTL_SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// Maximum number of service accounts per project.
const ACCOUNTS_MAX: usize = 100;

/// Creates a service account.
pub async fn create(
    engine: &Engine,
    caller: &Caller,
    project: ProjectId,
    name: Name,
    role: Role,
) -> Result<ServiceAccountRecord, CommandError> {
    caller.require(Permission::TokensWrite)?;
    caller.require_visible(project, "project", project)?;
    check_not_reserved(name.as_str())?;
    if role.is_of_platform() {
        let detail = format!("a service account needs a role for a project, and {role} is a platform role");
        let roles = Role::ALL.iter().filter(|role| !role.is_of_platform()).map(ToString::to_string);
        let next = format!("use one of {}", roles.collect::<Vec<_>>().join(", "));
        return Err(CommandError::new(Code::FieldInvalid, detail).about("role").then(next));
    }
    if !caller.principal.role.may_grant(role) {
        let detail = format!("a {} may not create a service account with the role {role}", caller.principal.role);
        return Err(CommandError::new(Code::Forbidden, detail).about("role"));
    }
    let ports = engine.ports();
    let id = ServiceAccountId::generate(&*ports.clock, &*ports.entropy);
    let account = ServiceAccountRecord { id, project, name, role, created_at: ports.clock.now(), deleted_at: None };
    let mut tx = engine.store().begin().await?;
    tx.project(project).await?;
    if tx.service_accounts(project, &Page::default()).await?.len() >= ACCOUNTS_MAX {
        let detail = format!("the project has {ACCOUNTS_MAX} service accounts, which is the maximum");
        return Err(CommandError::new(Code::LimitReached, detail).then(
            "delete accounts that are not needed: `gpuaas service-account list`, `gpuaas service-account delete NAME`",
        ));
    }
    tx.insert_service_account(&account).await?;
    let data = json!({ "name": account.name, "role": role });
    let (kind, correlation) = (EventKind::ServiceAccountCreated, Some(caller.correlation));
    platform_event(&mut tx, kind, "service_account", id.to_string(), correlation, data.clone()).await?;
    let target = format!("service-account/{}", account.name);
    audit(&mut tx, caller, AuditAction::ServiceAccountCreate, target, Some(project), data).await?;
    tx.commit().await?;
    Ok(account)
}

/// Deletes a service account; its tokens become invalid at once.
pub async fn delete(
    engine: &Engine,
    caller: &Caller,
    project: ProjectId,
    name: &Name,
) -> Result<ServiceAccountRecord, CommandError> {
    caller.require(Permission::TokensWrite)?;
    caller.require_visible(project, "project", project)?;
    let now = engine.ports().clock.now();
    let mut tx = engine.store().begin().await?;
    let account = tx.service_account_by_name(project, name).await?;
    let withdrawn = tx.delete_service_account(&account, now).await?;
    let data = json!({ "name": account.name, "tokens": withdrawn.len() });
    let (kind, correlation) = (EventKind::ServiceAccountDeleted, Some(caller.correlation));
    platform_event(&mut tx, kind, "service_account", account.id.to_string(), correlation, data.clone()).await?;
    let target = format!("service-account/{name}");
    audit(&mut tx, caller, AuditAction::ServiceAccountDelete, target, Some(project), data).await?;
    caller.commit(tx).await?;
    Ok(ServiceAccountRecord { deleted_at: Some(now), ..account })
}

/// Creates a token for a service account, with the account's role. The token's text is returned only here.
pub async fn create_token(
    engine: &Engine,
    caller: &Caller,
    project: ProjectId,
    name: &Name,
    ttl_seconds: Option<u64>,
) -> Result<(TokenRecord, SecretText), CommandError> {
    caller.require(Permission::TokensWrite)?;
    caller.require_visible(project, "project", project)?;
    let ttl = ttl_seconds.unwrap_or(TTL_SECONDS);
    if ttl == 0 || ttl > TTL_SECONDS_MAX {
        let detail = format!("a service account's token is valid for 1 second to {} days", TTL_SECONDS_MAX / 86_400);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("ttl_seconds"));
    }
    let ports = engine.ports();
    let secret = engine.keys().tokens().generate(PREFIX, &*ports.entropy);
    let now = ports.clock.now();
    let mut tx = engine.store().begin().await?;
    let account = tx.service_account_by_name(project, name).await?;
    if !caller.principal.role.may_grant(account.role) {
        let detail = format!("a {} may not create a token with the role {}", caller.principal.role, account.role);
        return Err(CommandError::new(Code::Forbidden, detail));
    }
    let token = TokenRecord {
        id: TokenId::generate(&*ports.clock, &*ports.entropy),
        name: format!("{}{name}", TokenRecord::SERVICE_ACCOUNT_PREFIX),
        sha256: secret.sha256,
        role: account.role,
        project: Some(project),
        service_account: Some(account.id),
        created_at: now,
        expires_at: Some(now.plus(Duration::from_secs(ttl))),
        revoked_at: None,
        is_bootstrap: false,
    };
    check_token_limit(&mut tx, token.project, now).await?;
    tx.insert_token(&token).await?;
    let data = json!({ "name": token.name, "role": token.role });
    let (id, correlation) = (token.id.to_string(), Some(caller.correlation));
    platform_event(&mut tx, EventKind::TokenCreated, "token", id, correlation, data.clone()).await?;
    audit(&mut tx, caller, AuditAction::TokenCreate, format!("token/{}", token.id), token.project, data).await?;
    tx.commit().await?;
    Ok((token, secret.text))
}

/// Lists the service accounts of a project, oldest first.
pub async fn list(
    engine: &Engine,
    caller: &Caller,
    project: ProjectId,
    page: &Page,
) -> Result<Vec<ServiceAccountRecord>, CommandError> {
    caller.require(Permission::TokensWrite)?;
    caller.require_visible(project, "project", project)?;
    Ok(engine.store().read().await?.service_accounts(project, page).await?)
}
