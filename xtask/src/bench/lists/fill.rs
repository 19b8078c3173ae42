//! Fills a database with rows while its control plane is stopped.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use gpuaas_model::{
    ActorType, AllocationId, AllocationState, AuditAction, AuditResult, Clock, Connectivity, CorrelationId, Endpoint,
    EventKind, Health, Lifecycle, MemberId, MemberPlace, MemberState, Name, NodeId, OperationId, OperationKind,
    OperationState, Progress, StreamName, TaskId, Timestamp, WorkloadId,
};
use gpuaas_store::{
    AllocationRecord, MemberRecord, NewAudit, NewEvent, NodeFilter, NodeRecord, OperationRecord, Page, ProjectRecord,
    Store, StoreOptions, TaskFilter, TaskRecord, Tx, WorkloadRecord,
};
use serde_json::json;
use uuid::Uuid;

/// Number of projects that share the nodes.
pub(super) const PROJECTS: u32 = 10;
/// Nodes per workload: one server, the others agents.
const NODES_EACH: usize = 5;
/// Rows per workload.
const OPERATIONS_EACH: usize = 2;
const TASKS_EACH: usize = 20;
const EVENTS_EACH: usize = 20;
const AUDITS_EACH: usize = 5;

/// Name of a project.
pub(super) fn project(number: u32) -> String {
    format!("bench-{number}")
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Real rows that serve as templates.
struct Templates {
    node: NodeRecord,
    task: TaskRecord,
    projects: Vec<ProjectRecord>,
}

/// Fills the database; returns a description of its content.
pub(super) async fn fill(url: &str, nodes: u32) -> anyhow::Result<String> {
    let began = Instant::now();
    let store = Store::open(&StoreOptions { url: url.to_owned() }, Arc::new(SystemClock)).await?;
    let templates = templates(&store).await?;
    let workloads = nodes as usize / NODES_EACH;
    for number in 0..workloads {
        // One transaction per workload keeps each of them short.
        let mut tx = store.begin().await?;
        workload(&mut tx, &templates, number).await.with_context(|| format!("workload {number}"))?;
        tx.commit().await?;
    }
    store.close().await;
    let count = |each: usize| workloads * each;
    Ok(format!(
        "{} nodes, as many allocations and members, {workloads} workloads, {} operations, {} tasks, {} events, {} audit records (filled in {:.1} s)",
        count(NODES_EACH),
        count(OPERATIONS_EACH),
        count(TASKS_EACH),
        count(EVENTS_EACH),
        count(AUDITS_EACH),
        began.elapsed().as_secs_f64()
    ))
}

async fn templates(store: &Store) -> anyhow::Result<Templates> {
    let mut reader = store.read().await?;
    let node = reader.nodes(&NodeFilter::default()).await?.into_iter().next().context("the database has no node")?;
    let tasks = reader.tasks(&TaskFilter::default()).await?;
    let task =
        tasks.into_iter().rfind(|task| task.state.is_final()).context("the database has no task that has ended")?;
    let projects = reader.projects(None, &Page::default()).await?;
    Ok(Templates { node, task, projects })
}

/// Adds a running workload with its nodes and history.
async fn workload(tx: &mut Tx, templates: &Templates, number: usize) -> anyhow::Result<()> {
    let project = templates.projects.get(number % templates.projects.len()).context("the database has no project")?;
    let workload = workload_record(project, number)?;
    tx.insert_workload(&workload).await?;
    let mut members = Vec::new();
    for ordinal in 0..NODES_EACH {
        let node = node_record(&templates.node, number * NODES_EACH + ordinal)?;
        let allocation = allocation_record(project, &node);
        tx.insert_node(&node).await?;
        tx.insert_allocation(&allocation).await?;
        members.push(member_record(&workload, &allocation, ordinal));
    }
    tx.insert_members(&members).await?;
    for _ in 0..OPERATIONS_EACH {
        tx.insert_operation(&operation_record(&workload, &members), &[]).await?;
    }
    let operation = tx.newest_operation(workload.id).await?.context("the new operation was not found")?;
    for at in 0..TASKS_EACH {
        tx.insert_task(&task_record(&templates.task, &operation, &members[at % NODES_EACH])).await?;
    }
    for _ in 0..EVENTS_EACH {
        tx.append_event(&event(&operation)).await?;
    }
    for _ in 0..AUDITS_EACH {
        tx.append_audit(&audit(&workload, &operation)).await?;
    }
    Ok(())
}

fn node_record(template: &NodeRecord, number: usize) -> anyhow::Result<NodeRecord> {
    Ok(NodeRecord {
        id: NodeId::from_uuid(Uuid::now_v7()),
        name: name(format!("gpu-{number}"))?,
        machine_id: Some(Uuid::new_v4().simple().to_string()),
        // These nodes have no agents; without this the control plane would detect that for each one.
        connectivity: Connectivity::Unreachable,
        ..template.clone()
    })
}

fn allocation_record(project: &ProjectRecord, node: &NodeRecord) -> AllocationRecord {
    AllocationRecord {
        id: AllocationId::from_uuid(Uuid::now_v7()),
        project: project.id,
        node: node.id,
        state: AllocationState::Active,
        detail: None,
        created_at: node.created_at,
        generation: 3,
    }
}

fn workload_record(project: &ProjectRecord, number: usize) -> anyhow::Result<WorkloadRecord> {
    let (id, name) = (WorkloadId::from_uuid(Uuid::now_v7()), name(format!("train-{number}"))?);
    let release = ("rke2".to_owned(), "v1.36.3+rke2r1".to_owned());
    Ok(WorkloadRecord {
        intent: json!({ "server_allocation_id": Uuid::new_v4(), "agent_allocation_ids": [Uuid::new_v4(), Uuid::new_v4()] }),
        lifecycle: Lifecycle::Running,
        progress: Progress { completed: 40, total: 40 },
        health: Health::Healthy,
        endpoints: vec![Endpoint {
            purpose: Endpoint::API.to_owned(),
            address: "https://10.0.0.1:6443".to_owned(),
            member: None,
        }],
        facts: [("ca_sha256".to_owned(), json!("ab".repeat(32)))].into(),
        observed_generation: 1,
        revision: 40,
        ..WorkloadRecord::requested(id, project.id, name, release, "ready".to_owned(), project.created_at)
    })
}

fn member_record(workload: &WorkloadRecord, allocation: &AllocationRecord, ordinal: usize) -> MemberRecord {
    let at = workload.created_at;
    let component = if ordinal == 0 { "server" } else { "agent" }.to_owned();
    let name = (component, u32::try_from(ordinal.max(1)).unwrap_or(u32::MAX));
    let place = MemberPlace::Allocation { allocation: allocation.id, node: allocation.node };
    MemberRecord {
        state: MemberState::Ready { since: at },
        health: Health::Healthy,
        touched: true,
        ..MemberRecord::pending(MemberId::from_uuid(Uuid::now_v7()), workload.id, name, place, at)
    }
}

fn operation_record(workload: &WorkloadRecord, members: &[MemberRecord]) -> OperationRecord {
    let at = workload.created_at;
    let by = ("token/developer".to_owned(), CorrelationId::from_uuid(Uuid::new_v4()));
    OperationRecord {
        state: OperationState::Succeeded,
        targets: members.iter().map(|member| member.id).collect(),
        started_at: Some(at),
        ended_at: Some(at.plus(Duration::from_secs(60))),
        ..OperationRecord::queued(OperationId::from_uuid(Uuid::now_v7()), workload, OperationKind::Deploy, by, at)
    }
}

fn task_record(template: &TaskRecord, operation: &OperationRecord, member: &MemberRecord) -> TaskRecord {
    TaskRecord {
        id: TaskId::from_uuid(Uuid::now_v7()),
        node: member.place.node().unwrap_or(template.node),
        project: Some(operation.project),
        allocation: member.place.allocation(),
        workload: Some(operation.workload),
        operation: Some(operation.id),
        ..template.clone()
    }
}

fn event(operation: &OperationRecord) -> NewEvent {
    NewEvent {
        stream: StreamName::Project(operation.project),
        kind: EventKind::OperationEnded,
        subject_kind: "operation",
        subject_id: operation.id.to_string(),
        correlation: Some(operation.correlation),
        data: json!({ "workload": operation.workload, "kind": operation.kind, "state": operation.state }),
    }
}

fn audit(workload: &WorkloadRecord, operation: &OperationRecord) -> NewAudit {
    NewAudit {
        actor: operation.requested_by.clone(),
        actor_type: ActorType::Principal,
        by: None,
        action: AuditAction::WorkloadDeploy,
        target: format!("workload/{}", workload.name),
        project: Some(workload.project),
        workload: Some(workload.id),
        result: AuditResult::Accepted,
        correlation: Some(operation.correlation),
        metadata: json!({ "operation": operation.id }),
    }
}

fn name(text: String) -> anyhow::Result<Name> {
    text.parse().with_context(|| text.clone())
}
