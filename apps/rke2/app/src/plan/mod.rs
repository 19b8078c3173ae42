//! The order of the steps: the server first, agents as soon as the server is ready, the kubeconfig as soon as the server permits it.

mod removal;
mod repair;
mod service;

use std::time::Duration;

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{Code, MemberEvent, MemberId, MemberState, OperationKind, TaskType};
use gpuaas_planner::{
    FailureScope, MemberView, OperationRequest, Plan, PlanRefusal, RecordKind, Retry, StepAction, StepKey, StepSpec,
    WorkloadView,
};

use crate::{
    call::CallName,
    manifest::phase,
    names,
    operation::{Eviction, Operation},
    size::ReleaseSize,
    subjects::named_member,
};

/// Longest time of each step, without the time that the bytes of its release need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Steps that only check, write a few files, or call a cluster that answers.
    pub short: Duration,
    /// Fetching a release, and installing it: other nodes fetch at the same time, and a disk may respond slowly.
    pub fetch: Duration,
    /// From a unit's start to READY=1 with images that are already imported: upstream's own tests allow four minutes; ten suit slow disks.
    pub start: Duration,
    /// From READY=1 to a KubeNode that is Ready: the images of the CNI may still be unpacked.
    pub node_ready: Duration,
    /// RKE2's uninstall script: measured at 2.3 s. Its killall script: 0.4 s.
    pub uninstall: Duration,
    /// The return of an unreachable node, for which a decommission waits: an operator may have to repair the machine.
    pub node_return: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            short: Duration::from_secs(60),
            fetch: Duration::from_secs(120),
            start: Duration::from_secs(600),
            node_ready: Duration::from_secs(300),
            uninstall: Duration::from_secs(180),
            node_return: Duration::from_secs(7 * 24 * 3_600),
        }
    }
}

/// Returns the steps of an operation.
pub(crate) fn plan(
    request: &OperationRequest,
    workload: &WorkloadView,
    targets: &[MemberId],
    deadlines: &Deadlines,
) -> Result<Plan, PlanRefusal> {
    if let Some(member) = workload.members.iter().find(|member| member.place.node().is_none()) {
        let detail = format!("{} is on a machine that takes no tasks", member.name);
        return Err(refuse(
            Code::StateConflict,
            detail,
            &format!("see its members: gpuaas workload show {}", workload.name),
        ));
    }
    let operation: Operation = request.parse()?;
    let eviction = operation.eviction();
    let planning = Planning { workload, targets, deadlines, size: ReleaseSize::of(&workload.release), eviction };
    match operation {
        Operation::Deploy(_) => planning.deploy(),
        Operation::AddMember(_) => Ok(planning.add_members()),
        Operation::DrainMember(of) => Ok(planning.drain(named_member(workload, &of.member)?)),
        Operation::UncordonMember(of) => Ok(planning.uncordon(named_member(workload, &of.member)?)),
        Operation::RemoveMember(of) => planning.remove(&of),
        Operation::ReplaceMember(of) => planning.replace(&of.member),
        Operation::Stop(_) => Ok(planning.stop()),
        Operation::Start(_) => planning.start(),
        Operation::Reconcile(_) => Ok(planning.reconcile()),
        Operation::Repair(of) => planning.repair(of.scope),
        Operation::Decommission(of) => Ok(planning.decommission(&of.give_up)),
        Operation::Upgrade(_) | Operation::Restore(_) => {
            Err(PlanRefusal::Unavailable { app: "rke2".to_owned(), kind: request.kind })
        }
    }
}

/// Refuses an operation because of the workload's present state.
fn refuse(code: Code, detail: String, next: &str) -> PlanRefusal {
    PlanRefusal::refused("kind", code, detail, next)
}

struct Planning<'a> {
    workload: &'a WorkloadView,
    targets: &'a [MemberId],
    deadlines: &'a Deadlines,
    size: ReleaseSize,
    eviction: Eviction,
}

impl Planning<'_> {
    fn deploy(&self) -> Result<Plan, PlanRefusal> {
        let server = self.server()?;
        let mut plan = Plan::new(OperationKind::Deploy).then(self.record(
            "placement",
            phase::PLACEMENT_VALIDATED,
            RecordKind::ConfirmPlacement,
        ));
        if is_serving(server) {
            // A deployment that is retried: its ready server is checked, not bootstrapped again.
            plan = plan.then(self.cluster(CallName::ApiReady, None, phase::SERVER_BOOTSTRAPPING, self.deadlines.short));
        } else {
            for step in self.bootstrap(server) {
                plan = plan.then(step);
            }
        }
        let ready = StepKey::named("server-ready");
        plan = plan.then(self.record("server-ready", phase::SERVER_READY_FOR_AGENT_JOIN, RecordKind::Milestone));
        let mut ends = Vec::new();
        for agent in self.agents().filter(|agent| !is_serving(agent)) {
            let (joined, end) = self.join(plan, agent, &ready);
            plan = joined;
            ends.push(end);
        }
        let mut deliver =
            self.cluster(CallName::DeliverAccess, None, phase::KUBECONFIG_DELIVERY_REQUESTED, self.deadlines.short);
        // The kubeconfig depends only on the server: a failed agent does not withhold it.
        deliver.needs = vec![ready];
        let mut done = self.record("ready", phase::READY, RecordKind::Milestone);
        done.needs = vec![deliver.key.clone()];
        done.after = ends;
        Ok(plan.with(deliver).with(done))
    }

    fn add_members(&self) -> Plan {
        let mut plan = Plan::new(OperationKind::AddMember)
            .then(self.record("placement", phase::PLACEMENT_VALIDATED, RecordKind::ConfirmPlacement))
            .then(self.cluster(CallName::ApiReady, None, phase::SERVER_READY_FOR_AGENT_JOIN, self.deadlines.short));
        let ready = StepKey::named("api_ready");
        let mut ends = Vec::new();
        for agent in self.agents().filter(|agent| !is_ready(agent)) {
            let (joined, end) = self.join(plan, agent, &ready);
            plan = joined;
            ends.push(end);
        }
        let mut done = self.record("ready", phase::READY, RecordKind::Milestone);
        done.after = ends;
        plan.with(done)
    }

    fn bootstrap(&self, server: &MemberView) -> Vec<StepSpec> {
        let start = StepSpec {
            on_first_start: Some(MemberEvent::Bootstrap),
            retry: Retry::SLOW,
            ..self.task(server, "start", TaskType::Rke2Start, phase::SERVER_BOOTSTRAPPING, self.start_deadline())
        };
        let node_ready =
            self.cluster(CallName::KubeNodeReady, Some(server), phase::SERVER_BOOTSTRAPPING, self.deadlines.node_ready);
        vec![
            StepSpec {
                on_first_start: Some(MemberEvent::Prepare),
                ..self.task(
                    server,
                    "preflight",
                    TaskType::Preflight,
                    phase::SERVER_BOOTSTRAP_REQUESTED,
                    self.deadlines.short,
                )
            },
            self.task(server, "fetch", TaskType::ArtifactFetch, phase::SERVER_BOOTSTRAPPING, self.fetch_deadline()),
            self.task(server, "install", TaskType::Rke2Install, phase::SERVER_BOOTSTRAPPING, self.install_deadline()),
            self.task(server, "configure", TaskType::Rke2Configure, phase::SERVER_BOOTSTRAPPING, self.deadlines.short),
            start,
            self.task(
                server,
                "kubeconfig",
                TaskType::Rke2KubeconfigRead,
                phase::SERVER_BOOTSTRAPPING,
                self.deadlines.short,
            ),
            self.cluster(CallName::ApiReady, None, phase::SERVER_BOOTSTRAPPING, self.deadlines.node_ready),
            StepSpec { on_success: Some(MemberEvent::BecameReady), ..node_ready },
        ]
    }

    /// Adds an agent's steps to the plan: its node is not touched before `ready`. Returns also the key of its last step.
    fn join(&self, mut plan: Plan, agent: &MemberView, ready: &StepKey) -> (Plan, StepKey) {
        let start = StepSpec {
            on_first_start: Some(MemberEvent::Join),
            retry: Retry::SLOW,
            ..self.task(agent, "start", TaskType::Rke2Start, phase::AGENT_JOINING, self.start_deadline())
        };
        let node_ready =
            self.cluster(CallName::KubeNodeReady, Some(agent), phase::AGENT_JOINING, self.deadlines.node_ready);
        let steps = [
            StepSpec {
                on_first_start: Some(MemberEvent::Prepare),
                ..self.task(agent, "preflight", TaskType::Preflight, phase::AGENT_JOIN_REQUESTED, self.deadlines.short)
            },
            self.task(agent, "fetch", TaskType::ArtifactFetch, phase::AGENT_JOINING, self.fetch_deadline()),
            self.task(agent, "install", TaskType::Rke2Install, phase::AGENT_JOINING, self.install_deadline()),
            self.task(agent, "configure", TaskType::Rke2Configure, phase::AGENT_JOINING, self.deadlines.short),
            start,
            StepSpec { on_success: Some(MemberEvent::BecameReady), ..node_ready },
        ];
        let mut before = ready.clone();
        for step in steps {
            let key = step.key.clone();
            plan = plan.with(StepSpec { needs: vec![before], scope: FailureScope::Member, ..step });
            before = key;
        }
        (plan, before)
    }

    fn fetch_deadline(&self) -> Duration {
        self.deadlines.fetch.saturating_add(self.size.fetch_time())
    }

    fn install_deadline(&self) -> Duration {
        self.deadlines.fetch.saturating_add(self.size.install_time())
    }

    /// The unit imports the images before it becomes ready.
    fn start_deadline(&self) -> Duration {
        self.deadlines.start.saturating_add(self.size.import_time())
    }

    fn server(&self) -> Result<&MemberView, PlanRefusal> {
        self.workload.component(names::SERVER).find(|server| server.state != MemberState::Removed).ok_or_else(|| {
            let next = format!("remove what is left: gpuaas workload decommission {}", self.workload.name);
            refuse(Code::StateConflict, "the workload has no server".to_owned(), &next)
        })
    }

    fn agents(&self) -> impl Iterator<Item = &MemberView> {
        self.targeted(names::AGENT)
    }

    fn targeted<'s>(&'s self, component: &'s str) -> impl Iterator<Item = &'s MemberView> {
        self.workload.component(component).filter(|member| self.targets.contains(&member.id))
    }

    fn task(&self, member: &MemberView, what: &str, task: TaskType, phase: &str, deadline: Duration) -> StepSpec {
        let node = member.place.node().expect("plan() refuses workloads with other members");
        let action = StepAction::NodeTask { node, task };
        step(StepKey::of(&member.name, what), Some(member), phase, action, deadline)
    }

    fn cluster(&self, call: CallName, member: Option<&MemberView>, phase: &str, deadline: Duration) -> StepSpec {
        let key =
            member.map_or_else(|| StepKey::named(call.as_str()), |member| StepKey::of(&member.name, call.step_name()));
        step(key, member, phase, StepAction::ClusterCall { call: call.as_str().to_owned() }, deadline)
    }

    fn record(&self, key: &str, phase: &str, record: RecordKind) -> StepSpec {
        step(StepKey::named(key), None, phase, StepAction::Record { record }, self.deadlines.short)
    }
}

/// Returns true if the member needs nothing to serve its role. What a controller reports brings no member up again.
fn is_serving(member: &MemberView) -> bool {
    matches!(member.state, MemberState::Ready { .. })
        && !member.is_observed_unwell()
        && !bugs::on(Bug::ResumeRepeatsSteps)
}

fn is_ready(member: &MemberView) -> bool {
    matches!(member.state, MemberState::Ready { .. })
}

fn step(key: StepKey, member: Option<&MemberView>, phase: &str, action: StepAction, deadline: Duration) -> StepSpec {
    StepSpec { member: member.map(|member| member.id), ..StepSpec::new(key, phase, action, deadline) }
}
