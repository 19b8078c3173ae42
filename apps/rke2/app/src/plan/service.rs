//! Stop and start of the whole cluster. A stop leaves all data.

use gpuaas_model::{MemberEvent, OperationKind, TaskType};
use gpuaas_planner::{FailureScope, MemberView, Plan, PlanRefusal, RecordKind, Retry, StepKey, StepSpec};
use serde_json::Value;

use super::Planning;
use crate::{call::CallName, manifest::phase, names};

impl Planning<'_> {
    /// Stops agents in parallel, and then the server. A member that does not stop does not keep the others running; one that never joined
    /// stays failed.
    pub(super) fn stop(&self) -> Plan {
        let mut plan = Plan::new(OperationKind::Stop);
        let stop = |member: &MemberView| StepSpec {
            on_success: self.has_joined(member).then_some(MemberEvent::Stopped),
            scope: FailureScope::Member,
            ..self.task(member, "stop", TaskType::Rke2Stop, phase::MEMBERS_STOPPING, self.deadlines.uninstall)
        };
        let agents: Vec<StepSpec> = self.agents().filter(|agent| agent.touched).map(stop).collect();
        let ends: Vec<StepKey> = agents.iter().map(|step| step.key.clone()).collect();
        let servers = self.targeted(names::SERVER).map(|server| StepSpec { after: ends.clone(), ..stop(server) });
        let steps: Vec<StepSpec> = agents.iter().cloned().chain(servers).collect();
        let needs = steps.iter().map(|step| step.key.clone()).collect();
        plan.steps = steps;
        let done = self.record("stopped", phase::STOPPED, RecordKind::Milestone);
        plan.with(StepSpec { needs, ..done })
    }

    /// Starts the server, and then the agents in parallel. Lifts the cordons that the platform itself has set.
    pub(super) fn start(&self) -> Result<Plan, PlanRefusal> {
        let server = self.server()?;
        let mut plan = Plan::new(OperationKind::Start)
            .then(self.start_step(server, phase::SERVER_STARTING))
            .then(self.cluster(CallName::ApiReady, None, phase::SERVER_STARTING, self.deadlines.node_ready))
            .then(StepSpec {
                on_success: Some(MemberEvent::BecameReady),
                ..self.cluster(CallName::KubeNodeReady, Some(server), phase::SERVER_STARTING, self.deadlines.node_ready)
            });
        let ready = StepKey::of(&server.name, CallName::KubeNodeReady.step_name());
        let mut ends = Vec::new();
        for agent in self.agents().filter(|agent| self.has_joined(agent)) {
            let node_ready = StepSpec {
                on_success: Some(MemberEvent::BecameReady),
                ..self.cluster(CallName::KubeNodeReady, Some(agent), phase::AGENTS_STARTING, self.deadlines.node_ready)
            };
            let mut steps = vec![self.start_step(agent, phase::AGENTS_STARTING), node_ready];
            if self.is_cordoned(agent) {
                steps.push(self.uncordon_step(agent, phase::AGENTS_STARTING));
            }
            let mut before = ready.clone();
            for step in steps {
                let needs = vec![std::mem::replace(&mut before, step.key.clone())];
                plan = plan.with(StepSpec { needs, scope: FailureScope::Member, ..step });
            }
            ends.push(before);
        }
        let done = self.record("started", phase::READY, RecordKind::Milestone);
        Ok(plan.with(StepSpec { needs: vec![ready], after: ends, ..done }))
    }

    fn start_step(&self, member: &MemberView, phase: &str) -> StepSpec {
        StepSpec { retry: Retry::SLOW, ..self.task(member, "start", TaskType::Rke2Start, phase, self.start_deadline()) }
    }

    /// Returns true if the member was ready once: then a start is enough to bring it back.
    fn has_joined(&self, member: &MemberView) -> bool {
        self.workload.facts.get(&names::joined(&member.name)) == Some(&Value::Bool(true))
    }

    /// Returns true if the platform itself keeps new work off the member.
    pub(super) fn is_cordoned(&self, member: &MemberView) -> bool {
        self.workload.facts.get(&names::cordoned(&member.name)) == Some(&Value::Bool(true))
    }
}
