//! The commands of the control plane. Each checks the caller's permission, reads, decides, and writes the change, its event and its audit
//! record in one transaction, which contains nothing else.

pub mod access;
pub mod actions;
mod agent_problem;
pub mod allocation;
pub mod artifact;
pub mod audit_chain;
pub mod authorities;
pub mod bootstrap;
mod clock;
pub mod diff;
mod enrollment;
pub mod fix;
pub mod history;
pub mod inspect;
pub mod keys;
pub mod logs;
mod machine;
pub mod node;
mod node_in_use;
pub mod node_removal;
pub mod operation;
pub mod ping;
pub mod placement;
mod plan_check;
mod platform_task;
pub mod project;
pub mod provision;
pub mod reimage;
pub mod report;
pub mod sealing_key;
pub mod service_account;
pub mod session;
pub mod sign_in;
pub mod token;
pub mod workload;

use gpuaas_model::{ActorType, AuditAction, AuditResult, ProjectId};
use gpuaas_store::{NewAudit, StoreError, Tx, WorkloadRecord};
use serde_json::Value;

use crate::caller::Caller;

/// Writes the audit record of an accepted command.
pub(crate) async fn audit(
    tx: &mut Tx,
    caller: &Caller,
    action: AuditAction,
    target: String,
    project: Option<ProjectId>,
    metadata: Value,
) -> Result<(), StoreError> {
    tx.append_audit(&accepted(caller, action, target, project, metadata)).await
}

/// Writes the audit record of an accepted command for a workload.
pub(crate) async fn audit_workload(
    tx: &mut Tx,
    caller: &Caller,
    action: AuditAction,
    workload: &WorkloadRecord,
    metadata: Value,
) -> Result<(), StoreError> {
    let target = format!("workload/{}", workload.name);
    let record = accepted(caller, action, target, Some(workload.project), metadata);
    tx.append_audit(&NewAudit { workload: Some(workload.id), ..record }).await
}

fn accepted(
    caller: &Caller,
    action: AuditAction,
    target: String,
    project: Option<ProjectId>,
    mut metadata: Value,
) -> NewAudit {
    if let (Some(session), Some(fields)) = (caller.session, metadata.as_object_mut()) {
        fields.insert("session".to_owned(), session.to_string().into());
    }
    NewAudit {
        actor: caller.principal.name.clone(),
        actor_type: ActorType::Principal,
        by: Some((&caller.principal).into()),
        action,
        target,
        project,
        workload: None,
        result: AuditResult::Accepted,
        correlation: Some(caller.correlation),
        metadata,
    }
}
