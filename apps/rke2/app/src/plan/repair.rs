//! Reconciliation, which restarts nothing, and repair, which restarts and reinstalls what its scope contains.

use gpuaas_model::{MemberEvent, OperationKind, TaskType};
use gpuaas_planner::{FailureScope, MemberView, Plan, PlanRefusal, RecordKind, Retry, StepKey, StepSpec};

use super::Planning;
use crate::{call::CallName, manifest::phase, names, operation::RepairScope};

impl Planning<'_> {
    /// Writes files and settings again where they deviate. A member that cannot be reconciled keeps its state. Nothing waits for an
    /// unreachable node: when it returns, it is looked at anyway.
    pub(super) fn reconcile(&self) -> Plan {
        let mut plan = Plan::new(OperationKind::Reconcile);
        let phase = phase::RECONCILING;
        let in_service = |member: &&MemberView| member.state.is_in_service();
        let sparing = |step| StepSpec { spares_member: true, scope: FailureScope::Member, ..step };
        let api_ready = self.cluster(CallName::ApiReady, None, phase, self.deadlines.short);
        let ready = api_ready.key.clone();
        let mut ends = Vec::new();
        let is_reachable = |member: &&MemberView| member.machine.unreachable_since.is_none();
        for member in self.workload.members.iter().filter(in_service).filter(is_reachable) {
            let mut tasks = vec![("configure", TaskType::Rke2Configure), ("enable", TaskType::Rke2Enable)];
            if member.component_key == names::SERVER {
                tasks.push(("kubeconfig", TaskType::Rke2KubeconfigRead));
            }
            for (what, task) in tasks {
                let step = self.task(member, what, task, phase, self.deadlines.short);
                ends.push(step.key.clone());
                plan = plan.with(sparing(step));
            }
        }
        plan = plan.with(api_ready);
        for member in self.workload.members.iter().filter(in_service) {
            let label = self.cluster(CallName::LabelKubeNode, Some(member), phase, self.deadlines.short);
            ends.push(label.key.clone());
            plan = plan.with(StepSpec { needs: vec![ready.clone()], ..sparing(label) });
        }
        let deliver = self.cluster(CallName::DeliverAccess, None, phase, self.deadlines.short);
        let needs = vec![deliver.key.clone()];
        plan = plan.with(StepSpec { needs: vec![ready], ..deliver });
        let done = self.record("reconciled", phase::READY, RecordKind::Milestone);
        plan.with(StepSpec { needs, after: ends, ..done })
    }

    /// Repairs the server first, if it is in scope, and then agents in parallel. A member whose node was never changed is brought up as by a
    /// deployment, with its preflight.
    ///
    /// A resumed repair has no targets that are repaired already. It delivers access all the same if the control plane is in its scope.
    pub(super) fn repair(&self, scope: RepairScope) -> Result<Plan, PlanRefusal> {
        let mut plan = Plan::new(OperationKind::Repair);
        let mut servers = self.targeted(names::SERVER).peekable();
        let has_server = servers.peek().is_some();
        for server in servers {
            let steps = match server.touched {
                true => self.reinstall(server, phase::SERVER_REPAIRING),
                false => self.bootstrap(server),
            };
            plan = steps.into_iter().map(|step| within(step, phase::SERVER_REPAIRING)).fold(plan, Plan::then);
        }
        if !has_server {
            plan = plan.then(self.cluster(CallName::ApiReady, None, phase::AGENTS_REPAIRING, self.deadlines.short));
        }
        let ready = plan.steps.last().map_or_else(|| StepKey::named("api_ready"), |step| step.key.clone());
        let mut ends = Vec::new();
        for agent in self.agents() {
            let mut before = ready.clone();
            if !agent.touched {
                let joins = plan.steps.len();
                (plan, before) = self.join(plan, agent, &before);
                for step in plan.steps.iter_mut().skip(joins) {
                    phase::AGENTS_REPAIRING.clone_into(&mut step.phase);
                }
                ends.push(before);
                continue;
            }
            for step in self.reinstall(agent, phase::AGENTS_REPAIRING) {
                let needs = vec![std::mem::replace(&mut before, step.key.clone())];
                plan = plan.with(StepSpec { needs, scope: FailureScope::Member, ..step });
            }
            ends.push(before);
        }
        if has_server || scope != RepairScope::Member {
            let deliver = self.cluster(CallName::DeliverAccess, None, phase::AGENTS_REPAIRING, self.deadlines.short);
            ends.push(deliver.key.clone());
            plan = plan.with(StepSpec { needs: vec![ready.clone()], ..deliver });
        }
        let done = self.record("repaired", phase::READY, RecordKind::Milestone);
        Ok(plan.with(StepSpec { needs: vec![ready], after: ends, ..done }))
    }

    /// Stops everything of a member, installs and configures what is missing, and starts it again. Its data stays.
    fn reinstall(&self, member: &MemberView, phase: &str) -> Vec<StepSpec> {
        let is_server = member.component_key == names::SERVER;
        let task = |what, task, deadline| self.task(member, what, task, phase, deadline);
        let event = if is_server { MemberEvent::Bootstrap } else { MemberEvent::Join };
        let mut steps = vec![
            StepSpec {
                on_first_start: Some(MemberEvent::Prepare),
                ..task("stop", TaskType::Rke2Stop, self.deadlines.uninstall)
            },
            task("fetch", TaskType::ArtifactFetch, self.fetch_deadline()),
            task("install", TaskType::Rke2Install, self.install_deadline()),
            task("configure", TaskType::Rke2Configure, self.deadlines.short),
        ];
        if !is_server {
            // The node's password may have changed with its installation.
            steps.push(self.cluster(CallName::ForgetNodePassword, Some(member), phase, self.deadlines.short));
        }
        steps.push(StepSpec {
            on_first_start: Some(event),
            retry: Retry::SLOW,
            ..task("start", TaskType::Rke2Start, self.start_deadline())
        });
        if is_server {
            steps.push(task("kubeconfig", TaskType::Rke2KubeconfigRead, self.deadlines.short));
            steps.push(self.cluster(CallName::ApiReady, None, phase, self.deadlines.node_ready));
        }
        steps.push(StepSpec {
            on_success: Some(MemberEvent::BecameReady),
            ..self.cluster(CallName::KubeNodeReady, Some(member), phase, self.deadlines.node_ready)
        });
        if self.is_cordoned(member) {
            steps.push(self.uncordon_step(member, phase));
        }
        steps
    }
}

/// Returns the step of a deployment as one of a repair.
fn within(step: StepSpec, phase: &str) -> StepSpec {
    StepSpec { phase: phase.to_owned(), ..step }
}
