//! Drains and removals of members, and the decommission of all of them.

use std::time::Duration;

use gpuaas_model::{MemberEvent, MemberState, OperationKind, TaskType};
use gpuaas_planner::{FailureScope, MemberView, Plan, PlanRefusal, RecordKind, StepKey, StepSpec};

use super::{Planning, is_ready};
use crate::{call::CallName, manifest::phase, names, subjects::named_member};

impl Planning<'_> {
    pub(super) fn drain(&self, member: &MemberView) -> Plan {
        let plan = Plan::new(OperationKind::DrainMember);
        let plan = self.drain_steps(member).into_iter().fold(plan, Plan::then);
        plan.then(self.record("drained", phase::READY, RecordKind::Milestone))
    }

    pub(super) fn uncordon(&self, member: &MemberView) -> Plan {
        Plan::new(OperationKind::UncordonMember).then(self.uncordon_step(member, phase::READY))
    }

    pub(super) fn remove(&self, member: &MemberView) -> Plan {
        let plan = self.removal_steps(member).into_iter().fold(Plan::new(OperationKind::RemoveMember), Plan::then);
        plan.then(self.record("removed", phase::READY, RecordKind::Milestone))
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
    /// stopped.
    pub(super) fn decommission(&self) -> Plan {
        let mut plan = Plan::new(OperationKind::Decommission);
        let mut ends = Vec::new();
        for agent in self.agents() {
            let mut before = Vec::new();
            for step in self.removal(agent, phase::AGENTS_REMOVING) {
                let (key, step) = (step.key.clone(), StepSpec { after: before, ..step });
                plan = plan.with(step);
                before = vec![key];
            }
            ends.extend(before);
        }
        for server in self.targeted(names::SERVER) {
            let mut before = ends.clone();
            for step in self.removal(server, phase::SERVER_REMOVING) {
                let (key, step) = (step.key.clone(), StepSpec { after: before, ..step });
                plan = plan.with(step);
                before = vec![key];
            }
            ends.extend(before);
        }
        let mut done = self.record("removed", phase::REMOVED, RecordKind::Milestone);
        done.needs = ends;
        plan.with(done)
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
    /// register again, and its files last. A member that is not well is not drained: its kubelet would not end the pods. Kubernetes replaces
    /// them when the KubeNode is deleted.
    fn removal_steps(&self, member: &MemberView) -> Vec<StepSpec> {
        let [stop, uninstall, residue] = self.removal(member, phase::MEMBER_REMOVING);
        let delete = self.cluster(CallName::DeleteKubeNode, Some(member), phase::MEMBER_REMOVING, self.deadlines.short);
        let removal =
            [stop, delete, uninstall, residue].map(|step| StepSpec { scope: FailureScope::Operation, ..step });
        let is_in_service = matches!(
            member.state,
            MemberState::Ready { .. } | MemberState::Draining { .. } | MemberState::Drained { .. }
        );
        let drain = if is_in_service && !member.is_unwell() { self.drain_steps(member).to_vec() } else { Vec::new() };
        drain.into_iter().chain(removal).collect()
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
