//! Records of operations, steps and tasks.

use gpuaas_model::*;
use gpuaas_planner::{FailureScope, Parameters, Retry, StepAction, StepKey, StepSpec};
use gpuaas_store::*;
use serde_json::json;

use super::{digest, uuid};
use crate::contract::database::NOW;

pub(crate) fn operation(workload: &WorkloadRecord) -> OperationRecord {
    OperationRecord {
        id: OperationId::from_uuid(uuid()),
        workload: workload.id,
        project: workload.project,
        kind: OperationKind::Deploy,
        parameters: Parameters::new(),
        state: OperationState::Queued,
        requested_by: "token/ada".into(),
        correlation: CorrelationId::from_uuid(uuid()),
        targets: Vec::new(),
        generation: 1,
        resumes: None,
        superseded_by: None,
        cancel_requested: false,
        by_platform: None,
        fault: None,
        created_at: NOW,
        started_at: None,
        ended_at: None,
    }
}

pub(crate) fn step(operation: &OperationRecord, position: u32) -> StepRecord {
    let spec = StepSpec {
        key: StepKey::named(format!("step-{position}")),
        phase: "preparing".into(),
        member: None,
        action: StepAction::ClusterCall { call: "ready".into() },
        needs: Vec::new(),
        after: Vec::new(),
        on_first_start: None,
        on_success: None,
        spares_member: false,
        deadline_ms: 1_000,
        retry: Retry::QUICK,
        scope: FailureScope::Operation,
    };
    StepRecord {
        id: StepId::from_uuid(uuid()),
        operation: operation.id,
        position,
        spec,
        state: StepState::Pending,
        attempts: 0,
        interruptions: 0,
        not_before: None,
        task: None,
        detail: None,
        fault: None,
        started_at: None,
        deadline_at: None,
        ended_at: None,
    }
}

pub(crate) fn task(node: &NodeRecord) -> TaskRecord {
    TaskRecord {
        id: TaskId::from_uuid(uuid()),
        node: node.id,
        epoch: 1,
        project: None,
        allocation: None,
        workload: None,
        operation: None,
        step: None,
        attempt: 1,
        task_type: TaskType::Noop,
        schema: 1,
        params: json!({}),
        state: TaskState::Dispatched,
        outcome: None,
        key_id: "key".into(),
        envelope_sha256: digest(),
        envelope: "{}".into(),
        fence: 1,
        correlation: CorrelationId::from_uuid(uuid()),
        created_at: NOW,
        dispatched_at: None,
        ended_at: None,
        expires_at: NOW,
    }
}
