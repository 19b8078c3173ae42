//! Workloads and what is done with them, as the API shows them.

use gpuaas_api_types::{Fault, Member, Operation, Step, Workload};
use gpuaas_store::{MemberRecord, NodeRecord, OperationRecord, Reader, StepRecord, StoreError, WorkloadRecord};

pub(crate) async fn workload(reader: &mut Reader, record: WorkloadRecord) -> Result<Workload, StoreError> {
    let release = reader.release(&record.app, &record.version).await?;
    Ok(Workload {
        id: record.id.to_string(),
        name: record.name.to_string(),
        project: record.project.to_string(),
        stand_in: release.iter().any(|artifact| artifact.stand_in),
        app: record.app,
        version: record.version,
        lifecycle: record.lifecycle.to_string(),
        phase: record.phase,
        completed: record.progress.completed,
        total: record.progress.total,
        health: record.health.to_string(),
        recovery: record.recovery.to_string(),
        endpoint: record.endpoint,
        fault: record.fault.map(fault),
        generation: record.generation,
        observed_generation: record.observed_generation,
        created_at: record.created_at.to_string(),
    })
}

pub(crate) fn member(record: MemberRecord, node: &NodeRecord) -> Member {
    Member {
        name: record.name(),
        node: record.node.to_string(),
        node_name: node.name.to_string(),
        state: record.state.name().to_string(),
        health: record.health.to_string(),
        fault: record.state.fault().cloned().or(record.fault).map(fault),
    }
}

pub(crate) fn operation(record: OperationRecord) -> Operation {
    Operation {
        id: record.id.to_string(),
        workload: record.workload.to_string(),
        kind: record.kind.to_string(),
        state: record.state.to_string(),
        requested_by: record.requested_by,
        fault: record.fault.map(fault),
        created_at: record.created_at.to_string(),
        ended_at: record.ended_at.map(|at| at.to_string()),
    }
}

pub(crate) fn step(record: StepRecord) -> Step {
    Step {
        key: record.spec.key.to_string(),
        phase: record.spec.phase,
        state: record.state.to_string(),
        attempts: record.attempts,
        detail: record.detail,
        fault: record.fault.map(fault),
        started_at_ms: record.started_at.map(gpuaas_model::Timestamp::as_millis),
        ended_at_ms: record.ended_at.map(gpuaas_model::Timestamp::as_millis),
    }
}

fn fault(fault: gpuaas_model::Fault) -> Fault {
    let evidence = fault.evidence;
    Fault {
        code: fault.code,
        summary: fault.summary,
        evidence_source: evidence.as_ref().map(|evidence| evidence.source.clone()),
        evidence: evidence.map(|evidence| evidence.text),
        next: fault.next.text,
        command: fault.next.command,
    }
}
