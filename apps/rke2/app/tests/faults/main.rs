//! The app's diagnosis through its public interface: each symptom among ordinary lines, healthy starts, orders, clocks and cures.

mod cases;
mod clocks_and_calls;
mod healthy;
mod orders;
mod ordinary;
mod pages;
mod planned;
mod symptoms;

use std::time::Duration;

use gpuaas_app_rke2::Rke2;
use gpuaas_model::{Code, Fault, Health, Lifecycle, MemberState, TaskType, Timestamp};
use gpuaas_planner::{
    App, FailureScope, MachineView, MemberView, ReleaseView, Retry, StepAction, StepKey, StepSpec, WorkloadView,
    test_views,
};
use gpuaas_wire::task::{JournalExcerpt, TaskFailure};

const SERVER: usize = 0;
const AGENT: usize = 1;

fn member(name: &str, number: u128) -> MemberView {
    let health = Health::Progressing;
    let of = test_views::member(name, number, MemberState::Joining { since: Timestamp::from_millis(1) });
    let address = format!("192.0.2.{number}");
    let machine = MachineView { address, clock_skew_seconds: Some(0), ..of.machine };
    MemberView { machine, health, own_health: health, ..of }
}

/// A workload `train` with server-1 on gpu-1 and agent-1 on gpu-2.
fn workload(lifecycle: Lifecycle) -> WorkloadView {
    WorkloadView {
        lifecycle,
        release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: Vec::new() },
        ..test_views::workload(vec![member("server-1", 1), member("agent-1", 2)])
    }
}

fn step(workload: &WorkloadView, member: usize, what: &str, action: StepAction) -> StepSpec {
    let member = &workload.members[member];
    let step = StepSpec::new(StepKey::of(&member.name, what), "agent_joining", action, Duration::from_secs(600));
    StepSpec { member: Some(member.id), retry: Retry::SLOW, scope: FailureScope::Member, ..step }
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
