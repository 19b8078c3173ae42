//! The app's diagnosis through its public interface: each symptom among ordinary lines, healthy starts, orders, clocks and cures.

mod cases;
mod clocks_and_calls;
mod healthy;
mod orders;
mod ordinary;
mod pages;
mod planned;
mod symptoms;

use std::collections::BTreeMap;

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{
    AllocationId, Code, Fault, Health, Lifecycle, MemberId, MemberPlace, MemberState, NodeId, ProjectId, TaskType,
    Timestamp, WorkloadId,
};
use gpuaas_planner::{
    App, FailureScope, MachineView, MemberView, ReleaseView, Retry, StepAction, StepKey, StepSpec, WorkloadView,
};
use gpuaas_wire::task::{JournalExcerpt, TaskFailure};
use serde_json::Value;
use uuid::Uuid;

const SERVER: usize = 0;
const AGENT: usize = 1;

fn member(component: &str, number: u128) -> MemberView {
    let id = |kind: u128| Uuid::from_u128(kind + number);
    MemberView {
        id: MemberId::from_uuid(id(100)),
        name: format!("{component}-1"),
        component_key: component.to_owned(),
        ordinal: 1,
        place: MemberPlace::Allocation {
            allocation: AllocationId::from_uuid(id(200)),
            node: NodeId::from_uuid(id(300)),
        },
        machine: MachineView {
            name: format!("gpu-{number}").parse().expect("a name"),
            address: format!("192.0.2.{number}"),
            clock_skew_seconds: Some(0),
            unreachable_since: None,
        },
        state: MemberState::Joining { since: Timestamp::from_millis(1) },
        health: Health::Progressing,
        fault: None,
        own_health: Health::Progressing,
        own_fault: None,
        touched: true,
    }
}

/// A workload `train` with server-1 on gpu-1 and agent-1 on gpu-2.
fn workload(lifecycle: Lifecycle) -> WorkloadView {
    WorkloadView {
        id: WorkloadId::from_uuid(Uuid::from_u128(1)),
        project: ProjectId::from_uuid(Uuid::from_u128(2)),
        name: "train".parse().expect("a name"),
        lifecycle,
        config: Value::Null,
        release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: Vec::new() },
        members: vec![member("server", 1), member("agent", 2)],
        facts: BTreeMap::new(),
        secrets: BTreeMap::new(),
    }
}

fn step(workload: &WorkloadView, member: usize, what: &str, action: StepAction) -> StepSpec {
    let member = &workload.members[member];
    StepSpec {
        key: StepKey::of(&member.name, what),
        phase: "agent_joining".to_owned(),
        member: Some(member.id),
        action,
        needs: Vec::new(),
        after: Vec::new(),
        on_first_start: None,
        on_success: None,
        spares_member: false,
        deadline_ms: 600_000,
        retry: Retry::SLOW,
        scope: FailureScope::Member,
    }
}

fn start_step(workload: &WorkloadView, member: usize) -> StepSpec {
    let node = workload.members[member].place.node().expect("a node");
    step(workload, member, "start", StepAction::NodeTask { node, task: TaskType::Rke2Start })
}

/// A failed start with these lines, one each second.
fn failure(code: Code, lines: &[impl AsRef<str>]) -> TaskFailure {
    let at = |second: i64| Timestamp::from_millis(1_790_000_000_000 + second * 1_000);
    let excerpt = |(second, text): (i64, &_)| {
        let text: &str = AsRef::<str>::as_ref(text);
        JournalExcerpt { at: at(second), text: text.to_owned() }
    };
    TaskFailure { journal: (0..).zip(lines).map(excerpt).collect(), ..TaskFailure::new(code, "it failed") }
}

/// The diagnosis of a start of this member that ended at its deadline with these lines.
fn diagnose(member: usize, lifecycle: Lifecycle, lines: &[impl AsRef<str>]) -> Fault {
    diagnose_failure(member, lifecycle, &failure(Code::TaskTimedOut, lines))
}

fn diagnose_failure(member: usize, lifecycle: Lifecycle, failure: &TaskFailure) -> Fault {
    let workload = workload(lifecycle);
    Rke2::default().diagnose(&start_step(&workload, member), failure, &workload)
}
