//! A person who changes a workload at random.

use std::{sync::Arc, time::Duration};

use gpuaas_engine::{Caller, CommandError, Precondition, commands};
use gpuaas_model::{
    AllocationId, AllocationState, CorrelationId, MemberState, OperationKind, Principal, ProjectId, Role, TokenId,
    WorkloadId,
};
use gpuaas_planner::OperationRequest;
use gpuaas_store::{AllocationFilter, MemberRecord, OperationRecord};
use serde_json::{Value, json};

use crate::{
    people::{People, accepted_answer},
    simulation::Simulation,
};

/// The longest time that a person waits before the next request.
const IDLE_MAX_MS: u64 = 90_000;

pub(crate) struct Person {
    simulation: Arc<Simulation>,
    people: People,
    name: &'static str,
    project: ProjectId,
    workload: WorkloadId,
}

impl Person {
    pub(crate) fn of(
        simulation: &Arc<Simulation>,
        name: &'static str,
        project: ProjectId,
        workload: WorkloadId,
    ) -> Self {
        Self { simulation: simulation.clone(), people: People::of(simulation), name, project, workload }
    }

    /// Sends this many requests, one after the other.
    pub(crate) async fn work(&self, rounds: usize) {
        for _ in 0..rounds {
            self.simulation.scheduler.sleep(Duration::from_millis(self.simulation.between(500, IDLE_MAX_MS))).await;
            self.ask().await;
        }
    }

    async fn ask(&self) {
        use OperationKind as K;
        let member = self.member().await.unwrap_or_else(|| "agent-1".to_owned());
        let drain = json!({
            "member": member, "force": self.simulation.between(0, 2) == 0, "timeout_seconds": self.simulation.between(20, 300),
        });
        match self.simulation.between(0, 100) {
            0..10 => self.start(K::DrainMember, drain).await,
            10..17 => self.start(K::UncordonMember, json!({ "member": member })).await,
            17..27 => self.start(K::RemoveMember, drain).await,
            27..37 => self.add_member().await,
            37..45 => self.replace(&member, drain).await,
            45..52 => self.start(K::Stop, json!({})).await,
            52..62 => self.start(K::Start, json!({})).await,
            62..68 => self.start(K::Reconcile, json!({})).await,
            68..80 => self.repair(&member).await,
            80..90 => self.resume().await,
            90..98 => self.cancel().await,
            _ => self.decommission().await,
        }
    }

    /// Returns the name of a random member, which may be removed.
    async fn member(&self) -> Option<String> {
        let members: Vec<MemberRecord> =
            self.people.read(async |reader| reader.members_of(self.workload).await).await.unwrap_or_default();
        let present: Vec<String> =
            members.iter().filter(|member| member.state != MemberState::Removed).map(MemberRecord::name).collect();
        self.simulation.pick(&present)
    }

    async fn free_allocation(&self) -> Option<AllocationId> {
        let filter = AllocationFilter {
            project: Some(self.project),
            state: Some(AllocationState::Active),
            ..AllocationFilter::default()
        };
        let held = self.people.read(async |reader| reader.allocations(&filter).await).await.unwrap_or_default();
        // Also one that is in use: the request is refused then.
        self.simulation.pick(&held).map(|held| held.id)
    }

    async fn start(&self, kind: OperationKind, parameters: Value) {
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let (workload, request) = (self.workload, OperationRequest { kind, parameters });
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move {
                commands::workload::start_operation(&engine, &caller, workload, &Precondition::Any, request).await
            })
        });
        let answer = asked.await;
        self.record(kind.as_str(), answer);
    }

    async fn add_member(&self) {
        let (workload, Some(allocation)) = (self.workload, self.free_allocation().await) else { return };
        let intent = json!({ "agent_allocation_ids": [allocation] });
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move {
                commands::workload::add_member(&engine, &caller, workload, &Precondition::Any, intent).await
            })
        });
        let answer = asked.await;
        self.record("add_member", answer);
    }

    async fn replace(&self, member: &str, mut parameters: Value) {
        let Some(by) = self.free_allocation().await else { return };
        parameters["member"] = json!(member);
        parameters["by"] = json!(by);
        self.start(OperationKind::ReplaceMember, parameters).await;
    }

    async fn repair(&self, member: &str) {
        let parameters = match self.simulation.between(0, 3) {
            0 => json!({ "scope": "member", "member": member }),
            1 => json!({ "scope": "control_plane" }),
            _ => json!({ "scope": "whole_runtime" }),
        };
        self.start(OperationKind::Repair, parameters).await;
    }

    async fn resume(&self) {
        let workload = self.workload;
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move { commands::workload::resume(&engine, &caller, workload, &Precondition::Any).await })
        });
        let answer = asked.await;
        self.record("resume", answer);
    }

    async fn cancel(&self) {
        let newest = self.people.read(async |reader| reader.newest_operation(self.workload).await).await;
        let Ok(Some(OperationRecord { id, .. })) = newest else { return };
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move { commands::operation::cancel(&engine, &caller, id).await })
        });
        let answer = asked.await;
        self.record("cancel", answer);
    }

    async fn decommission(&self) {
        let workload = self.workload;
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(
                async move { commands::workload::decommission(&engine, &caller, workload, &Precondition::Any).await },
            )
        });
        let answer = asked.await;
        self.record("decommission", answer);
    }

    fn record<T>(&self, what: &str, answer: Option<Result<T, CommandError>>) {
        if accepted_answer(&self.simulation, &format!("{}: {what}", self.name), answer).is_some() {
            self.simulation.log(&format!("{}: {what} was accepted", self.name));
            self.simulation.count("operations accepted");
        }
    }

    fn caller(&self) -> Caller {
        let principal = Principal {
            token: TokenId::from_uuid(self.simulation.uuid()),
            name: self.name.to_owned(),
            role: Role::ProjectAdmin,
            project: Some(self.project),
            service_account: None,
            workload: None,
        };
        Caller {
            principal,
            correlation: CorrelationId::from_uuid(self.simulation.uuid()),
            is_dry_run: false,
            expected_plan: None,
        }
    }
}
