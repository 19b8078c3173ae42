//! A person who sends the requests of the script.

use std::{sync::Arc, time::Duration};

use gpuaas_engine::{
    Caller, CommandError, Precondition,
    commands::{
        self,
        workload::{Accepted, Preview},
    },
};
use gpuaas_model::{
    AllocationId, AllocationState, CorrelationId, MemberState, OperationKind, Principal, ProjectId, Role, Timestamp,
    TokenId, WorkloadId,
};
use gpuaas_planner::OperationRequest;
use gpuaas_store::{AllocationFilter, MemberRecord, OperationRecord};
use serde_json::{Value, json};

use super::script::{Action, Choice, PEOPLE, RequestKind, ScriptEntry};
use crate::{
    oracles::Oracle,
    people::{People, accepted_answer},
    simulation::Simulation,
};

pub(crate) struct Person {
    simulation: Arc<Simulation>,
    people: People,
    index: usize,
    project: ProjectId,
    workload: WorkloadId,
}

impl Person {
    pub(crate) fn of(simulation: &Arc<Simulation>, index: usize, project: ProjectId, workload: WorkloadId) -> Self {
        Self { simulation: simulation.clone(), people: People::of(simulation), index, project, workload }
    }

    /// Sends this person's requests of the script, which began at that time, one after the other.
    pub(crate) async fn work(&self, began: Timestamp, entries: &[ScriptEntry]) {
        for entry in entries {
            let Action::Request { person, kind, choice } = &entry.action else { continue };
            if *person == self.index {
                self.simulation.scheduler.sleep_until(began.plus(entry.at)).await;
                self.ask(*kind, *choice).await;
            }
        }
    }

    pub(super) async fn ask(&self, kind: RequestKind, choice: Choice) {
        use OperationKind as K;
        let member = self.member(choice.member).await.unwrap_or_else(|| "agent-1".to_owned());
        let drain = json!({ "member": member, "force": choice.is_forced, "timeout_seconds": choice.timeout_seconds });
        let planned = choice.planned_before;
        match kind {
            RequestKind::Drain => self.start(K::DrainMember, drain, planned).await,
            RequestKind::Uncordon => self.start(K::UncordonMember, json!({ "member": member }), planned).await,
            RequestKind::Remove => self.start(K::RemoveMember, drain, planned).await,
            RequestKind::Add => self.add_member(choice).await,
            RequestKind::Replace => self.replace(choice, drain).await,
            RequestKind::Stop => self.start(K::Stop, json!({}), planned).await,
            RequestKind::Start => self.start(K::Start, json!({}), planned).await,
            RequestKind::Reconcile => self.start(K::Reconcile, json!({}), planned).await,
            RequestKind::Repair => self.repair(choice, &member).await,
            RequestKind::Resume => self.resume().await,
            RequestKind::Cancel => self.cancel().await,
            RequestKind::Decommission => self.decommission().await,
        }
    }

    /// Returns the name of the member with this number among those that are not removed.
    async fn member(&self, number: u64) -> Option<String> {
        let members: Vec<MemberRecord> =
            self.people.read(async |reader| reader.members_of(self.workload).await).await.unwrap_or_default();
        let present: Vec<String> =
            members.iter().filter(|member| member.state != MemberState::Removed).map(MemberRecord::name).collect();
        pick(&present, number)
    }

    async fn free_allocation(&self, number: u64) -> Option<AllocationId> {
        let filter = AllocationFilter {
            project: Some(self.project),
            state: Some(AllocationState::Active),
            ..AllocationFilter::default()
        };
        let held = self.people.read(async |reader| reader.allocations(&filter).await).await.unwrap_or_default();
        // Also one that is in use: the request is refused then.
        pick(&held, number).map(|held| held.id)
    }

    /// Starts an operation; with `planned`, exactly the plan that the person previewed that long before.
    async fn start(&self, kind: OperationKind, parameters: Value, planned: Option<Duration>) {
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let (workload, request) = (self.workload, OperationRequest { kind, parameters });
        let seen = match planned {
            Some(before) => {
                let seen = self.preview(&request).await;
                self.simulation.scheduler.sleep(before).await;
                let Some(seen) = seen else { return };
                Some(seen)
            }
            None => None,
        };
        let caller = self.caller().expecting(seen.as_ref().map(|seen| seen.digest.clone()));
        let asked = self.people.try_as(caller, move |engine, caller| {
            Box::pin(async move {
                commands::workload::start_operation(&engine, &caller, workload, &Precondition::Any, request).await
            })
        });
        let answer = asked.await;
        if let (Some(seen), Some(Ok(accepted))) = (&seen, &answer) {
            self.check_seen(seen, accepted);
        }
        self.record(kind.as_str(), answer);
    }

    async fn preview(&self, request: &OperationRequest) -> Option<Preview> {
        let (workload, request) = (self.workload, request.clone());
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move {
                commands::workload::preview_operation(&engine, &caller, workload, &Precondition::Any, &request).await
            })
        });
        accepted_answer(&self.simulation, &format!("{}: preview", PEOPLE[self.index]), asked.await)
    }

    /// The steps that were accepted are those that the person has seen.
    fn check_seen(&self, seen: &Preview, accepted: &Accepted) {
        let before = seen.plan.steps.iter().map(|step| (&step.key, &step.action));
        if before.ne(accepted.steps.iter().map(|step| (&step.spec.key, &step.spec.action))) {
            let what = format!("{} runs another plan than {}", accepted.operation.kind, seen.digest);
            self.simulation.report_violation(Oracle::Digests, what);
        }
        self.simulation.count("plans seen before they ran");
    }

    async fn add_member(&self, choice: Choice) {
        let Some(allocation) = self.free_allocation(choice.allocation).await else { return };
        let (workload, intent) = (self.workload, json!({ "agent_allocation_ids": [allocation] }));
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move {
                commands::workload::add_member(&engine, &caller, workload, &Precondition::Any, intent).await
            })
        });
        let answer = asked.await;
        self.record("add_member", answer);
    }

    async fn replace(&self, choice: Choice, mut parameters: Value) {
        let Some(by) = self.free_allocation(choice.allocation).await else { return };
        parameters["by"] = json!(by);
        self.start(OperationKind::ReplaceMember, parameters, None).await;
    }

    async fn repair(&self, choice: Choice, member: &str) {
        let parameters = match choice.scope {
            0 => json!({ "scope": "member", "member": member }),
            1 => json!({ "scope": "control_plane" }),
            _ => json!({ "scope": "whole_runtime" }),
        };
        self.start(OperationKind::Repair, parameters, choice.planned_before).await;
    }

    pub(super) async fn resume(&self) {
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
        let name = PEOPLE[self.index];
        if accepted_answer(&self.simulation, &format!("{name}: {what}"), answer).is_some() {
            self.simulation.log(&format!("{name}: {what} was accepted"));
            self.simulation.count("operations accepted");
        }
    }

    fn caller(&self) -> Caller {
        let principal = Principal {
            token: TokenId::from_uuid(self.simulation.uuid()),
            name: PEOPLE[self.index].to_owned(),
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
            session: None,
        }
    }
}

/// Returns the value with this number, counted round and round; `None` if there is none.
pub(super) fn pick<T: Clone>(among: &[T], number: u64) -> Option<T> {
    let at = number.checked_rem(among.len() as u64)?;
    among.get(usize::try_from(at).ok()?).cloned()
}
