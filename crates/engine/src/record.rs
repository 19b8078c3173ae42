//! Writes the records that every change leaves: events for subscribers and audit records. They belong to the transaction of the change, so
//! that none can be missing.

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    ActorType, AuditAction, AuditResult, CorrelationId, EventKind, OwnActor, ProjectId, StreamName, WorkloadId,
};
use gpuaas_store::{
    MemberRecord, NewAudit, NewEvent, OperationRecord, StepRecord, StoreError, TaskRecord, Tx, WorkloadRecord,
};
use serde_json::{Value, json};

use crate::waiting;

/// Writes events of one project under one correlation id.
pub(crate) struct EventScope {
    pub(crate) project: ProjectId,
    pub(crate) correlation: CorrelationId,
}

impl EventScope {
    /// The project and correlation id of an operation.
    pub(crate) fn of(operation: &OperationRecord) -> Self {
        Self { project: operation.project, correlation: operation.correlation }
    }

    pub(crate) async fn workload(
        &self,
        tx: &mut Tx,
        kind: EventKind,
        workload: &WorkloadRecord,
    ) -> Result<(), StoreError> {
        let data = json!({
            "name": workload.name, "lifecycle": workload.lifecycle, "phase": workload.phase, "health": workload.health,
            "recovery": workload.recovery, "progress": workload.progress, "endpoints": workload.endpoints,
            "generation": workload.generation, "observed_generation": workload.observed_generation,
            "fault": workload.fault.as_ref().map(|fault| &fault.code), "waiting": waiting::of_workload(workload),
        });
        self.event(tx, kind, "workload", workload.id.to_string(), data).await
    }

    pub(crate) async fn member(&self, tx: &mut Tx, member: &MemberRecord) -> Result<(), StoreError> {
        let fault = member.state.fault().or(member.fault.as_ref());
        let data = json!({
            "workload": member.workload, "member": member.name(), "state": member.state.name(), "health": member.health,
            "fault": fault.map(|fault| &fault.code), "waiting": waiting::of_member(member),
        });
        self.event(tx, EventKind::MemberChanged, "member", member.id.to_string(), data).await
    }

    pub(crate) async fn operation(
        &self,
        tx: &mut Tx,
        kind: EventKind,
        operation: &OperationRecord,
    ) -> Result<(), StoreError> {
        let data = json!({
            "workload": operation.workload, "kind": operation.kind, "parameters": operation.parameters,
            "state": operation.state, "superseded_by": operation.superseded_by, "requested_by": operation.requested_by,
            "reason": operation.by_platform.as_ref().map(|own| &own.reason),
            "fault": operation.fault.as_ref().map(|fault| &fault.code), "waiting": waiting::of_operation(operation),
        });
        self.event(tx, kind, "operation", operation.id.to_string(), data).await
    }

    pub(crate) async fn step(&self, tx: &mut Tx, step: &StepRecord, of: WorkloadId) -> Result<(), StoreError> {
        let data = json!({
            "workload": of, "operation": step.operation, "key": step.spec.key, "phase": step.spec.phase, "state": step.state,
            "attempts": step.attempts, "detail": step.detail, "not_before": step.not_before.map(|at| at.to_string()),
            "fault": step.fault.as_ref().map(|fault| &fault.code), "waiting": waiting::of_step(step),
        });
        self.event(tx, EventKind::StepChanged, "step", step.id.to_string(), data).await
    }

    pub(crate) async fn event(
        &self,
        tx: &mut Tx,
        kind: EventKind,
        subject_kind: &'static str,
        subject_id: String,
        data: Value,
    ) -> Result<(), StoreError> {
        let stream = StreamName::Project(self.project);
        tx.append_event(&NewEvent {
            stream,
            kind,
            subject_kind,
            subject_id,
            correlation: Some(self.correlation),
            data,
        })
        .await?;
        Ok(())
    }
}

/// Writes an event on the platform's stream.
pub(crate) async fn platform_event(
    tx: &mut Tx,
    kind: EventKind,
    subject_kind: &'static str,
    subject_id: String,
    correlation: Option<CorrelationId>,
    data: Value,
) -> Result<(), StoreError> {
    tx.append_event(&NewEvent { stream: StreamName::Platform, kind, subject_kind, subject_id, correlation, data })
        .await?;
    Ok(())
}

/// Writes the event of a token, a service account or a session on the platform's stream.
///
/// If it belongs to a project, the project's stream gets the event too, without data: everybody in a project may read its events, but names and
/// roles of credentials are shown only to those who manage them, and a session only to the holder of its token.
pub(crate) async fn credential_event(
    tx: &mut Tx,
    project: Option<ProjectId>,
    kind: EventKind,
    (subject_kind, subject_id): (&'static str, String),
    correlation: CorrelationId,
    data: Value,
) -> Result<(), StoreError> {
    if let Some(project) = project {
        let events = EventScope { project, correlation };
        events.event(tx, kind, subject_kind, subject_id.clone(), json!({})).await?;
    }
    platform_event(tx, kind, subject_kind, subject_id, Some(correlation), data).await
}

/// Writes an audit record of an action of the control plane itself.
pub(crate) async fn audit_own(
    tx: &mut Tx,
    action: AuditAction,
    target: String,
    correlation: Option<CorrelationId>,
    metadata: Value,
) -> Result<(), StoreError> {
    let record = NewAudit::of_own(OwnActor::ControlPlane, action, target, metadata);
    tx.append_audit(&NewAudit { correlation, ..record }).await
}

/// Writes the audit record and the events of a task that the control plane sends or a node ends.
pub(crate) async fn audit_task(
    tx: &mut Tx,
    task: &TaskRecord,
    node: &str,
    action: AuditAction,
    result: AuditResult,
) -> Result<(), StoreError> {
    let (actor, actor_type) = match action {
        AuditAction::TaskComplete => (OwnActor::of_node(node), ActorType::Node),
        _ => (OwnActor::ControlPlane.to_string(), ActorType::ControlPlane),
    };
    let record = NewAudit {
        actor,
        actor_type,
        by: None,
        action,
        target: format!("node/{node}"),
        project: task.project,
        workload: task.workload,
        result,
        correlation: Some(task.correlation),
        metadata: json!({
            "task": task.id, "type": task.task_type, "state": task.state, "key": task.key_id,
            "envelope": format!("sha256:{}", task.envelope_sha256), "operation": task.operation,
        }),
    };
    if result != AuditResult::Failed || !bugs::on(Bug::AuditMissing) {
        tx.append_audit(&record).await?;
    }
    // The event goes to the platform's stream, and to the project's stream if the task belongs to a project.
    let data = json!({
        "workload": task.workload, "node": node, "type": task.task_type, "state": task.state,
        "operation": task.operation, "waiting": waiting::of_task(task, node),
    });
    platform_event(tx, EventKind::TaskChanged, "task", task.id.to_string(), Some(task.correlation), data.clone())
        .await?;
    if let Some(project) = task.project {
        let events = EventScope { project, correlation: task.correlation };
        events.event(tx, EventKind::TaskChanged, "task", task.id.to_string(), data).await?;
    }
    Ok(())
}
