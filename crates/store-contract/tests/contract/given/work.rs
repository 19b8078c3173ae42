//! Records of operations, steps and tasks.

use std::time::Duration;

use gpuaas_model::*;
use gpuaas_planner::{StepAction, StepKey, StepSpec};
use gpuaas_store::*;
use serde_json::json;

use super::{digest, uuid};
use crate::contract::database::NOW;

pub(crate) fn operation(workload: &WorkloadRecord) -> OperationRecord {
    let (id, by) = (OperationId::from_uuid(uuid()), ("token/ada".into(), CorrelationId::from_uuid(uuid())));
    OperationRecord::queued(id, workload, OperationKind::Deploy, by, NOW)
}

pub(crate) fn step(operation: &OperationRecord, position: u32) -> StepRecord {
    let action = StepAction::ClusterCall { call: "ready".into() };
    let key = StepKey::named(format!("step-{position}"));
    let spec = StepSpec::new(key, "preparing", action, Duration::from_secs(1));
    StepRecord::pending(StepId::from_uuid(uuid()), operation.id, position, spec)
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
