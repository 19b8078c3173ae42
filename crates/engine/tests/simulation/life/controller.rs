//! The workload's controller: reports the health of members, sometimes about an earlier generation.

use std::sync::Arc;

use gpuaas_engine::{Caller, CommandError, commands};
use gpuaas_model::{CorrelationId, Health, Principal, ProjectId, Role, ServiceAccountId, TokenId, WorkloadId};
use gpuaas_planner::report::{Report, ReportedMember};
use gpuaas_store::{MemberRecord, TokenRecord};

use super::person::pick;
use crate::{
    oracles::Oracle,
    people::{People, name},
    simulation::Simulation,
};

const NAME: &str = "judge";

pub(crate) struct Controller {
    simulation: Arc<Simulation>,
    people: People,
    project: ProjectId,
    workload: WorkloadId,
    account: ServiceAccountId,
}

impl Controller {
    /// Creates the controller's service account.
    pub(crate) async fn create(
        simulation: &Arc<Simulation>,
        project: ProjectId,
        workload: WorkloadId,
    ) -> Result<Self, String> {
        let people = People::of(simulation);
        let created = people.ask(move |engine, caller| {
            Box::pin(async move {
                let role = (Role::AppController, Some(workload));
                commands::service_account::create(&engine, &caller, project, name(NAME), role).await
            })
        });
        let account = created.await.map_err(|error| error.to_string())?.id;
        Ok(Self { simulation: simulation.clone(), people, project, workload, account })
    }

    /// Reports one member.
    pub(crate) async fn report(&self, is_stale: bool, is_healthy: bool, number: u64) {
        let members: Vec<MemberRecord> =
            self.people.read(async |reader| reader.members_of(self.workload).await).await.unwrap_or_default();
        let Some(member) = pick(&members, number).map(|member| member.name()) else { return };
        let health = if is_healthy { Health::Healthy } else { Health::Degraded };
        let code = (!is_healthy).then(|| "slow_requests".to_owned());
        let said = ReportedMember { member, health, code, message: None, evidence: None };
        match self.send(is_stale, vec![said]).await {
            Some(Ok(_)) if is_stale => {
                let what = "a report about an earlier generation was accepted".to_owned();
                self.simulation.report_violation(Oracle::Reports, what);
            }
            Some(Ok(_)) => self.simulation.count("reports accepted"),
            Some(Err(refused)) => self.simulation.log(&format!("report refused: {refused}")),
            None => self.simulation.log("no answer to a report"),
        }
    }

    /// Withdraws what was reported, so that nothing else than the platform's own judgment counts.
    pub(crate) async fn withdraw(&self) {
        loop {
            match self.send(false, Vec::new()).await {
                Some(Ok(_)) => return,
                // What was reported about an earlier generation does not count any more.
                Some(Err(refused)) => return self.simulation.log(&format!("report refused: {refused}")),
                None => self.people.pause().await,
            }
        }
    }

    async fn send(
        &self,
        is_stale: bool,
        members: Vec<ReportedMember>,
    ) -> Option<Result<commands::report::Accepted, CommandError>> {
        let workload = self.workload;
        let row = self.people.read(async |reader| reader.workload(workload).await).await.ok()?;
        let generation = row.generation.checked_sub(u64::from(is_stale))?;
        let report = Report { generation, sequence: None, phase: None, progress: None, members };
        let asked = self.people.try_as(self.caller(), move |engine, caller| {
            Box::pin(async move { commands::report::report(&engine, &caller, workload, &report).await })
        });
        asked.await
    }

    fn caller(&self) -> Caller {
        let principal = Principal {
            token: TokenId::from_uuid(self.simulation.uuid()),
            name: format!("{}{NAME}", TokenRecord::SERVICE_ACCOUNT_PREFIX),
            role: Role::AppController,
            project: Some(self.project),
            service_account: Some(self.account),
            workload: Some(self.workload),
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
