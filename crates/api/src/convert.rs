//! Converts rows to API types.

use gpuaas_api_types::{
    Allocation, Archive, AuditEntry, Authority, Event, Project, SealingKey, ServiceAccount, SigningKey, Task, Token,
    Waiting,
};
use gpuaas_engine::commands::{authorities::AuthorityView, keys::SigningKeyView, sealing_key::SealingKeyView};
use gpuaas_model::Name;
use gpuaas_store::{
    AllocationRecord, AllocationUser, ArchiveRecord, AuditRecord, EventRecord, NamedMember, ProjectRecord,
    ServiceAccountRecord, TaskRecord, TokenRecord,
};

pub(crate) fn project(record: ProjectRecord) -> Project {
    Project { id: record.id.to_string(), name: record.name.to_string(), created_at: record.created_at.to_string() }
}

pub(crate) fn token(record: TokenRecord, project_name: Option<&Name>) -> Token {
    Token {
        id: record.id.to_string(),
        name: record.name,
        role: record.role.to_string(),
        project: record.project.map(|id| id.to_string()),
        project_name: project_name.map(ToString::to_string),
        created_at: record.created_at.to_string(),
        expires_at: record.expires_at.map(|at| at.to_string()),
        revoked_at: record.revoked_at.map(|at| at.to_string()),
    }
}

/// Converts a service account; `workload` is the name of the workload that it controls.
pub(crate) fn service_account(record: ServiceAccountRecord, workload: Option<&Name>) -> ServiceAccount {
    ServiceAccount {
        id: record.id.to_string(),
        name: record.name.to_string(),
        project: record.project.to_string(),
        role: record.role.to_string(),
        workload: record.workload.map(|id| id.to_string()),
        workload_name: workload.map(ToString::to_string),
        created_at: record.created_at.to_string(),
        deleted_at: record.deleted_at.map(|at| at.to_string()),
    }
}

pub(crate) fn signing_key(view: SigningKeyView) -> SigningKey {
    SigningKey {
        id: view.key.key_id,
        state: view.key.state.to_string(),
        waiting_for: view.waiting_for,
        public: view.key.public,
        version: view.key.version,
        created_at: view.key.created_at.to_string(),
        changed_at: view.key.changed_at.to_string(),
    }
}

pub(crate) fn sealing_key(view: SealingKeyView) -> SealingKey {
    SealingKey {
        id: view.id,
        state: view.state.as_str().to_owned(),
        waiting_for: view.waiting_for,
        next: view.next,
        previous: view.previous,
        rows_left: view.rows_left,
        since: view.since.map(|at| at.to_string()),
    }
}

pub(crate) fn authority(view: AuthorityView) -> Authority {
    Authority {
        id: view.authority.id,
        state: view.authority.state.to_string(),
        waiting_for: view.waiting_for,
        certificate: view.authority.certificate,
        version: view.authority.version,
        created_at: view.authority.created_at.to_string(),
        changed_at: view.authority.changed_at.to_string(),
    }
}

pub(crate) fn allocation(
    record: AllocationRecord,
    node_name: &Name,
    project_name: &Name,
    user: Option<&AllocationUser>,
    waiting: Option<Waiting>,
) -> Allocation {
    let member = user.and_then(|user| user.member.as_ref());
    Allocation {
        waiting,
        id: record.id.to_string(),
        project: record.project.to_string(),
        project_name: project_name.to_string(),
        node: record.node.to_string(),
        node_name: node_name.to_string(),
        state: record.state.to_string(),
        detail: record.detail,
        workload: user.map(|user| user.workload_name.to_string()),
        member: member.map(NamedMember::name),
        component: member.map(|member| member.component_key.clone()),
        created_at: record.created_at.to_string(),
    }
}

pub(crate) fn task(record: TaskRecord, node_name: &Name, waiting: Option<Waiting>) -> Task {
    Task {
        waiting,
        id: record.id.to_string(),
        node: record.node.to_string(),
        node_name: node_name.to_string(),
        operation: record.operation.map(|id| id.to_string()),
        task_type: record.task_type.to_string(),
        schema: record.schema,
        attempt: record.attempt,
        state: record.state.to_string(),
        key_id: record.key_id,
        envelope_sha256: record.envelope_sha256,
        fence: record.fence,
        outcome: record.outcome.and_then(|outcome| serde_json::to_value(outcome).ok()),
        created_at: record.created_at.to_string(),
        ended_at: record.ended_at.map(|at| at.to_string()),
    }
}

pub(crate) fn event(record: EventRecord) -> Event {
    Event {
        stream: record.stream.to_string(),
        sequence: record.sequence,
        at: record.at.to_string(),
        kind: record.kind.to_string(),
        subject_kind: record.subject_kind,
        subject_id: record.subject_id,
        correlation_id: record.correlation.map(|id| id.to_string()),
        data: record.data,
    }
}

pub(crate) fn archive(record: ArchiveRecord) -> Archive {
    Archive {
        id: record.id.to_string(),
        kind: record.kind.to_string(),
        from: record.from.to_string(),
        until: record.until.to_string(),
        entries: record.entries,
        sha256: record.sha256,
        size_bytes: record.size_bytes,
        created_at: record.created_at.to_string(),
    }
}

pub(crate) fn audit(record: AuditRecord) -> AuditEntry {
    AuditEntry {
        sequence: record.sequence,
        at: record.at.to_string(),
        actor: record.actor,
        actor_type: record.actor_type.to_string(),
        actor_id: record.by.map(|by| by.token.to_string()),
        service_account: record.by.and_then(|by| by.service_account).map(|id| id.to_string()),
        actor_role: record.by.and_then(|by| by.role).map(|role| role.to_string()),
        action: record.action.to_string(),
        target: record.target,
        project: record.project.map(|id| id.to_string()),
        workload: record.workload.map(|id| id.to_string()),
        result: record.result.to_string(),
        correlation_id: record.correlation.map(|id| id.to_string()),
        metadata: record.metadata,
    }
}
