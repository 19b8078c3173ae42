//! Service accounts: programs that act for a project, with short-lived tokens.

use std::time::Duration;

use gpuaas_model::{
    AuditAction, Code, EventKind, Lifecycle, Name, Permission, ProjectId, Role, ServiceAccountId, TokenId, WorkloadId,
};
use gpuaas_store::{Page, ServiceAccountRecord, TokenRecord, Tx};
use gpuaas_trust::SecretText;
use serde_json::json;

use super::{
    audit, report,
    token::{PREFIX, check_not_reserved, check_token_limit},
};
use crate::{caller::Caller, engine::Engine, error::CommandError, record::credential_event};

/// Default lifetime of a token, in seconds.
const TTL_SECONDS: u64 = 3_600;
/// Longest lifetime of a token, in seconds: the limit for a leaked one.
const TTL_SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// Maximum number of service accounts per project.
const ACCOUNTS_MAX: usize = 100;

/// Creates a service account. A role that acts for one workload ([`Role::is_of_workload`]) needs that workload, and no other role has one.
pub async fn create(
    engine: &Engine,
    caller: &Caller,
    project: ProjectId,
    name: Name,
    (role, workload): (Role, Option<WorkloadId>),
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
    check_has_workload(role, workload)?;
    let ports = engine.ports();
    let id = ServiceAccountId::generate(&*ports.clock, &*ports.entropy);
    let created_at = ports.clock.now();
    let account = ServiceAccountRecord { id, project, name, role, workload, created_at, deleted_at: None };
    let mut tx = engine.store().begin().await?;
    tx.project(project).await?;
    let others = tx.service_accounts(project, &Page::default()).await?;
    if let Some(workload) = workload {
        check_controls_alone(&mut tx, project, workload, &others).await?;
    }
    if others.len() >= ACCOUNTS_MAX {
        let detail = format!("the project has {ACCOUNTS_MAX} service accounts, which is the maximum");
        return Err(CommandError::new(Code::LimitReached, detail).then(
            "delete accounts that are not needed: `gpuaas service-account list`, `gpuaas service-account delete NAME`",
        ));
    }
    tx.insert_service_account(&account).await?;
    let mut data = json!({ "name": account.name, "role": role });
    if let Some(workload) = workload {
        data["workload"] = json!(workload);
    }
    let (kind, subject) = (EventKind::ServiceAccountCreated, ("service_account", id.to_string()));
    credential_event(&mut tx, Some(project), kind, subject, caller.correlation, data.clone()).await?;
    let target = format!("service-account/{}", account.name);
    audit(&mut tx, caller, AuditAction::ServiceAccountCreate, target, Some(project), data).await?;
    tx.commit().await?;
    Ok(account)
}

/// Refuses a role that acts for one workload without one, and a workload with any other role.
fn check_has_workload(role: Role, workload: Option<WorkloadId>) -> Result<(), CommandError> {
    let (detail, next) = match (role.is_of_workload(), workload) {
        (true, Some(_)) | (false, None) => return Ok(()),
        (true, None) => {
            (format!("a service account with the role {role} acts for one workload"), "name it: --workload NAME")
        }
        (false, Some(_)) => {
            let detail = format!("the role {role} acts for the whole project, not for one workload");
            (detail, "leave out the workload, or use the role app-controller")
        }
    };
    Err(CommandError::new(Code::FieldInvalid, detail).about("workload").then(next))
}

/// Refuses a workload that the project does not have, that is removed, or that has a controller: of two, nobody could say whose report
/// is the last one.
async fn check_controls_alone(
    tx: &mut Tx,
    project: ProjectId,
    id: WorkloadId,
    accounts: &[ServiceAccountRecord],
) -> Result<(), CommandError> {
    let workload = tx.workload(id).await?;
    if workload.project != project {
        return Err(CommandError::not_found("workload", id));
    }
    if workload.lifecycle == Lifecycle::Decommissioned {
        let detail = format!("{} is decommissioned: there is nothing left to control", workload.name);
        let next = "name a workload that exists: gpuaas workload list";
        return Err(CommandError::new(Code::StateConflict, detail).about("workload").then(next));
    }
    let Some(other) = accounts.iter().find(|account| account.workload == Some(id)) else { return Ok(()) };
    let detail = format!("service account {} controls {} already", other.name, workload.name);
    let next = format!(
        "create a token of that account: gpuaas service-account token {name}; or delete it first: gpuaas service-account delete {name}",
        name = other.name
    );
    Err(CommandError::new(Code::StateConflict, detail).about("workload").then(next))
}

/// Deletes a service account; its tokens become invalid at once, and what it reported about a workload is forgotten.
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
    report::forget(&mut tx, caller, &account).await?;
    let data = json!({ "name": account.name, "tokens": withdrawn.len() });
    let (kind, subject) = (EventKind::ServiceAccountDeleted, ("service_account", account.id.to_string()));
    credential_event(&mut tx, Some(project), kind, subject, caller.correlation, data.clone()).await?;
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
        workload: account.workload,
        created_at: now,
        expires_at: Some(now.plus(Duration::from_secs(ttl))),
        revoked_at: None,
        is_bootstrap: false,
    };
    check_token_limit(&mut tx, token.project, now).await?;
    tx.insert_token(&token).await?;
    let data = json!({ "name": token.name, "role": token.role });
    let (kind, subject) = (EventKind::TokenCreated, ("token", token.id.to_string()));
    credential_event(&mut tx, token.project, kind, subject, caller.correlation, data.clone()).await?;
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
