//! Drains and removals of members, and the decommission of all of them.

use std::time::Duration;

use gpuaas_model::{MemberEvent, OperationKind, TaskType};
use gpuaas_planner::{FailureScope, MemberView, Plan, PlanRefusal, RecordKind, Retry, StepKey, StepSpec};

use super::{Planning, is_ready};
use crate::{
    call::CallName, faults::KUBE_NODE_NOT_READY, manifest::phase, names, operation::RemoveMember,
    subjects::named_member,
};

impl Planning<'_> {
    pub(super) fn drain(&self, member: &MemberView) -> Plan {
        let plan = Plan::new(OperationKind::DrainMember);
        let plan = self.drain_steps(member).into_iter().fold(plan, Plan::then);
        plan.then(self.record("drained", phase::READY, RecordKind::Milestone))
    }

    pub(super) fn uncordon(&self, member: &MemberView) -> Plan {
        Plan::new(OperationKind::UncordonMember).then(self.uncordon_step(member, phase::READY))
    }

    /// Removes one member. A resumed removal whose member is removed already has nothing left to do.
    pub(super) fn remove(&self, of: &RemoveMember) -> Result<Plan, PlanRefusal> {
        let mut plan = Plan::new(OperationKind::RemoveMember);
        if !self.targets.is_empty() {
            let member = named_member(self.workload, &of.member)?;
            let steps = if of.give_up { self.give_up_steps(member).to_vec() } else { self.removal_steps(member) };
            plan = steps.into_iter().fold(plan, Plan::then);
        }
        Ok(plan.then(self.record("removed", phase::READY, RecordKind::Milestone)))
    }

    /// Removes a member from the cluster without its node. The member ends last: until then a cancelled removal can be resumed.
    fn give_up_steps(&self, member: &MemberView) -> [StepSpec; 2] {
        let delete = self.cluster(CallName::DeleteKubeNode, Some(member), phase::MEMBER_REMOVING, self.deadlines.short);
        [
            StepSpec { on_first_start: Some(MemberEvent::Remove), ..delete },
            StepSpec { scope: FailureScope::Operation, ..self.give_up_step(member, phase::MEMBER_REMOVING) },
        ]
    }

    /// Ends a member without proof of what is left on its node.
    fn give_up_step(&self, member: &MemberView, phase: &str) -> StepSpec {
        StepSpec {
            key: StepKey::of(&member.name, "give-up"),
            member: Some(member.id),
            on_first_start: Some(MemberEvent::Remove),
            on_success: Some(MemberEvent::Removed),
            scope: FailureScope::Member,
            ..self.record("give-up", phase, RecordKind::GiveUp)
        }
    }

    /// Waits for the node of a member.
    fn await_node_step(&self, member: &MemberView, phase: &str) -> StepSpec {
        StepSpec {
            key: StepKey::of(&member.name, "await-node"),
            member: Some(member.id),
            on_first_start: Some(MemberEvent::Remove),
            scope: FailureScope::Member,
            deadline_ms: u64::try_from(self.deadlines.node_return.as_millis()).unwrap_or(u64::MAX),
            retry: Retry::NEVER,
            ..self.record("await-node", phase, RecordKind::AwaitNode)
        }
    }

    /// Adds the new member first: if it does not join, the old one is untouched.
    pub(super) fn replace(&self, old: &str) -> Result<Plan, PlanRefusal> {
        let old = named_member(self.workload, old)?;
        let mut plan = Plan::new(OperationKind::ReplaceMember)
            .then(self.record("placement", phase::PLACEMENT_VALIDATED, RecordKind::ConfirmPlacement))
            .then(self.cluster(CallName::ApiReady, None, phase::SERVER_READY_FOR_AGENT_JOIN, self.deadlines.short));
        let mut before = StepKey::named("api_ready");
        for new in self.agents().filter(|agent| agent.id != old.id && !is_ready(agent)) {
            (plan, before) = self.join(plan, new, &before);
        }
        let removal = self.removal_steps(old).into_iter();
        let plan = removal.fold(plan, |plan, step| {
            let needs = vec![std::mem::replace(&mut before, step.key.clone())];
            plan.with(StepSpec { needs, ..step })
        });
        Ok(plan.then(self.record("replaced", phase::READY, RecordKind::Milestone)))
    }

    /// Removes agents first, in parallel. Each step runs however the one before it ended, because a unit that no longer exists cannot be
    /// stopped. A member on an unreachable node waits for it and delays no other member; one that is given up ends at once.
    pub(super) fn decommission(&self, give_up: &[String]) -> Plan {
        let mut plan = Plan::new(OperationKind::Decommission);
        let (mut ends, mut awaited) = (Vec::new(), Vec::new());
        for (component, phase) in [(names::AGENT, phase::AGENTS_REMOVING), (names::SERVER, phase::SERVER_REMOVING)] {
            let earlier = ends.clone();
            for member in self.targeted(component) {
                let steps = if give_up.contains(&member.name) {
                    vec![self.give_up_step(member, phase)]
                } else {
                    self.decommission_steps(member, phase, &earlier)
                };
                let last = steps.last().map(|step| step.key.clone());
                plan = steps.into_iter().fold(plan, Plan::with);
                let is_unreachable = member.machine.unreachable_since.is_some();
                if is_unreachable { awaited.extend(last) } else { ends.extend(last) }
            }
        }
        ends.extend(awaited);
        let mut done = self.record("removed", phase::REMOVED, RecordKind::Milestone);
        done.needs = ends;
        plan.with(done)
    }

    /// Returns the steps that remove one member after those in `earlier` have ended, or when its node has returned.
    fn decommission_steps(&self, member: &MemberView, phase: &str, earlier: &[StepKey]) -> Vec<StepSpec> {
        let awaits = member.machine.unreachable_since.map(|_| self.await_node_step(member, phase));
        let needs: Vec<StepKey> = awaits.iter().map(|step| step.key.clone()).collect();
        // In `after`, too: a step with an `after` still begins when another member has failed the operation.
        let mut after = if needs.is_empty() { earlier.to_vec() } else { needs.clone() };
        let mut steps: Vec<StepSpec> = awaits.into_iter().collect();
        for step in self.removal(member, phase) {
            let key = step.key.clone();
            steps.push(StepSpec { needs: needs.clone(), after, ..step });
            after = vec![key];
        }
        steps
    }

    /// Moves the work of a member away. If that fails the member serves on, without new work.
    fn drain_steps(&self, member: &MemberView) -> [StepSpec; 2] {
        let call = |call, deadline| StepSpec {
            spares_member: true,
            ..self.cluster(call, Some(member), phase::MEMBER_DRAINING, deadline)
        };
        let deadline = Duration::from_secs(self.eviction.timeout_seconds);
        [
            StepSpec {
                on_first_start: Some(MemberEvent::Drain),
                ..call(CallName::CordonKubeNode, self.deadlines.short)
            },
            StepSpec { on_success: Some(MemberEvent::Drained), ..call(CallName::DrainKubeNode, deadline) },
        ]
    }

    /// Lets a member accept work again.
    pub(super) fn uncordon_step(&self, member: &MemberView, phase: &str) -> StepSpec {
        StepSpec {
            on_success: Some(MemberEvent::BecameReady),
            spares_member: true,
            ..self.cluster(CallName::UncordonKubeNode, Some(member), phase, self.deadlines.short)
        }
    }

    /// Removes one member of a running cluster: its service ends before its KubeNode is deleted, because a kubelet that restarts would
    /// register again, and its files last. A member that the platform observes to be unwell is not drained: its kubelet would not end the
    /// pods. Kubernetes replaces them when the KubeNode is deleted. A controller's report lifts no budget, and neither does a KubeNode that is
    /// not Ready: its unit runs, so its kubelet may, too. For an unreachable node the removal waits.
    fn removal_steps(&self, member: &MemberView) -> Vec<StepSpec> {
        let [stop, uninstall, residue] = self.removal(member, phase::MEMBER_REMOVING);
        let delete = self.cluster(CallName::DeleteKubeNode, Some(member), phase::MEMBER_REMOVING, self.deadlines.short);
        let removal =
            [stop, delete, uninstall, residue].map(|step| StepSpec { scope: FailureScope::Operation, ..step });
        let is_unreachable = member.machine.unreachable_since.is_some();
        let first = match (is_unreachable, member.state.is_in_service() && may_end_pods(member)) {
            (true, _) => {
                let wait = self.await_node_step(member, phase::MEMBER_REMOVING);
                vec![StepSpec { scope: FailureScope::Operation, ..wait }]
            }
            (false, true) => self.drain_steps(member).to_vec(),
            (false, false) => Vec::new(),
        };
        first.into_iter().chain(removal).collect()
    }

    fn removal(&self, member: &MemberView, phase: &str) -> [StepSpec; 3] {
        let step = |what, task, deadline| self.task(member, what, task, phase, deadline);
        [
            StepSpec {
                on_first_start: Some(MemberEvent::Remove),
                scope: FailureScope::Member,
                ..step("stop", TaskType::Rke2Stop, self.deadlines.uninstall)
            },
            StepSpec {
                scope: FailureScope::Member,
                ..step("uninstall", TaskType::Rke2Uninstall, self.deadlines.uninstall)
            },
            StepSpec {
                on_success: Some(MemberEvent::Removed),
                ..step("residue", TaskType::Residue, self.deadlines.short)
            },
        ]
    }
}

/// Returns true if nothing shows that the kubelet of a member in service is dead.
fn may_end_pods(member: &MemberView) -> bool {
    let is_only_not_ready = || member.own_fault.as_ref().is_some_and(|fault| fault.code == KUBE_NODE_NOT_READY.code);
    !member.is_observed_unwell() || is_only_not_ready()
}
