//! A tenant: deploys, adds members, decommissions, resumes, cancels, reads journals, requests access, views nodes, and repeats
//! old requests.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_engine::{Caller, CommandError, Engine, Precondition, commands, ownership};
use gpuaas_model::{
    AllocationId, AllocationState, CorrelationId, NodeId, OperationId, Principal, ProjectId, Role, TokenId, WorkloadId,
};
use gpuaas_store::{AllocationFilter, NodeFilter, OperationFilter, WorkloadFilter};
use serde_json::json;

use crate::{
    oracles::{self, Effect},
    people::{People, accepted_answer, name},
    simulation::Simulation,
};

/// A tenant's request, by ids. A repeated request names the same objects, even if another tenant holds them by then.
#[derive(Clone, Debug)]
enum Request {
    Deploy(Vec<AllocationId>),
    AddMember(WorkloadId, AllocationId),
    Decommission(WorkloadId),
    Resume(WorkloadId),
    Cancel(OperationId),
    Journal(WorkloadId, String),
    Access(WorkloadId),
    Show(NodeId),
}

pub(crate) struct Tenant {
    simulation: Arc<Simulation>,
    people: People,
    project: ProjectId,
    sent: Mutex<Vec<Request>>,
}

impl Tenant {
    pub(crate) fn of(simulation: &Arc<Simulation>, project: ProjectId) -> Self {
        Self { simulation: simulation.clone(), people: People::of(simulation), project, sent: Mutex::default() }
    }

    /// Sends requests one after the other, without end.
    pub(crate) async fn work(&self) {
        loop {
            self.simulation.scheduler.sleep(Duration::from_millis(self.simulation.between(200, 15_000))).await;
            let asked = self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let again = if self.simulation.between(0, 100) < 35 { self.simulation.pick(&asked) } else { None };
            let request = match again {
                Some(request) => {
                    self.simulation.count("requests repeated");
                    Some(request)
                }
                None => self.new_request().await,
            };
            if let Some(request) = request {
                self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                self.ask(request).await;
            }
        }
    }

    async fn new_request(&self) -> Option<Request> {
        let (allocations, workloads) = (self.active_allocations().await, self.workloads().await);
        Some(match self.simulation.between(0, 100) {
            0..30 => {
                let wanted = usize::try_from(self.simulation.between(1, 3)).ok()?;
                let mut chosen = Vec::new();
                for _ in 0..wanted {
                    chosen.extend(self.simulation.pick(&allocations).filter(|one| !chosen.contains(one)));
                }
                if chosen.is_empty() {
                    return None;
                }
                Request::Deploy(chosen)
            }
            30..37 => Request::AddMember(self.simulation.pick(&workloads)?, self.simulation.pick(&allocations)?),
            37..55 => Request::Decommission(self.simulation.pick(&workloads)?),
            55..67 => Request::Resume(self.simulation.pick(&workloads)?),
            67..70 => Request::Cancel(self.any_operation().await?),
            70..85 => {
                let workload = self.simulation.pick(&workloads)?;
                let members = self.people.read(async |reader| reader.members_of(workload).await).await.ok()?;
                Request::Journal(workload, self.simulation.pick(&members)?.name())
            }
            85..95 => Request::Access(self.simulation.pick(&workloads)?),
            _ => {
                let all = self.people.read(async |reader| reader.nodes(&NodeFilter::default()).await).await.ok()?;
                Request::Show(self.simulation.pick(&all)?.id)
            }
        })
    }

    async fn ask(&self, request: Request) {
        let caller = self.caller();
        match request {
            Request::Deploy(allocations) => {
                let ask = self.deploy(&allocations);
                let asked = self.people.try_as(caller, move |engine, caller| {
                    Box::pin(async move { commands::workload::deploy(&engine, &caller, ask).await })
                });
                if accepted_answer(&self.simulation, "deploy", asked.await).is_some() {
                    self.simulation.count("workloads deployed");
                }
            }
            Request::AddMember(workload, allocation) => {
                let intent = json!({ "agent_allocation_ids": [allocation] });
                let asked = self.people.try_as(caller, move |engine, caller| {
                    Box::pin(async move {
                        commands::workload::add_member(&engine, &caller, workload, &Precondition::Any, intent).await
                    })
                });
                accepted_answer(&self.simulation, "add member", asked.await);
            }
            Request::Decommission(workload) => {
                let asked = self.people.try_as(caller, move |engine, caller| {
                    Box::pin(async move {
                        commands::workload::decommission(&engine, &caller, workload, &Precondition::Any).await
                    })
                });
                accepted_answer(&self.simulation, "decommission", asked.await);
            }
            Request::Resume(workload) => {
                let asked = self.people.try_as(caller, move |engine, caller| {
                    Box::pin(
                        async move { commands::workload::resume(&engine, &caller, workload, &Precondition::Any).await },
                    )
                });
                accepted_answer(&self.simulation, "resume", asked.await);
            }
            Request::Cancel(operation) => {
                let asked = self.people.try_as(caller, move |engine, caller| {
                    Box::pin(async move { commands::operation::cancel(&engine, &caller, operation).await })
                });
                accepted_answer(&self.simulation, "cancel", asked.await);
            }
            Request::Journal(workload, member) => self.read_journal(caller, workload, member),
            Request::Access(workload) => {
                let ask = commands::access::DeliveryRequest::default();
                let asked = self.people.try_as(caller, move |engine, caller| {
                    Box::pin(async move { commands::access::deliver(&engine, &caller, workload, ask).await.map(drop) })
                });
                if accepted_answer(&self.simulation, "access", asked.await).is_some() {
                    self.simulation.count("credentials delivered");
                }
            }
            Request::Show(node) => self.show(caller, node).await,
        }
    }

    /// Follows a journal as the API does: opens it once and streams lines for as long as the access is held.
    fn read_journal(&self, caller: Caller, workload: WorkloadId, member: String) {
        let Some(plane) = self.simulation.any_plane() else { return };
        let (simulation, project) = (self.simulation.clone(), self.project);
        let until = self.simulation.scheduler.now().plus(Duration::from_secs(self.simulation.between(1, 300)));
        self.simulation.scheduler.spawn(plane.process, async move {
            match follow(&simulation, &plane.engine, &caller, workload, &member, (project, until)).await {
                Ok(()) => simulation.count("journals read"),
                Err(refused) => simulation.log(&format!("no journal of {member}: {refused}")),
            }
        });
    }

    async fn show(&self, caller: Caller, node: NodeId) {
        let (simulation, project) = (self.simulation.clone(), self.project);
        let seen = self.people.try_as(caller, move |engine, caller| {
            Box::pin(async move {
                let mut reader = engine.store().read().await?;
                let record = reader.node(node).await?;
                ownership::visible_node(&mut reader, &caller, record, "gpu").await?;
                oracles::check_effect(&simulation, Effect::Shown(node, project));
                Ok(())
            })
        });
        accepted_answer(&self.simulation, "show", seen.await);
    }

    fn deploy(&self, allocations: &[AllocationId]) -> commands::workload::Deploy {
        commands::workload::Deploy {
            project: self.project,
            app: "rke2".to_owned(),
            version: None,
            name: name(&format!("w-{}", self.simulation.between(0, 1_000_000))),
            intent: json!({ "server_allocation_id": allocations[0], "agent_allocation_ids": allocations[1..] }),
            config: json!({}),
        }
    }

    fn caller(&self) -> Caller {
        let principal = Principal {
            token: TokenId::from_uuid(self.simulation.uuid()),
            name: "tenant".to_owned(),
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

    async fn active_allocations(&self) -> Vec<AllocationId> {
        let filter = AllocationFilter {
            project: Some(self.project),
            state: Some(AllocationState::Active),
            ..AllocationFilter::default()
        };
        let held = self.people.read(async |reader| reader.allocations(&filter).await).await.unwrap_or_default();
        held.into_iter().map(|held| held.id).collect()
    }

    async fn workloads(&self) -> Vec<WorkloadId> {
        let filter = WorkloadFilter { project: Some(self.project), ..WorkloadFilter::default() };
        let all = self.people.read(async |reader| reader.workloads(&filter).await).await.unwrap_or_default();
        all.into_iter().map(|workload| workload.id).collect()
    }

    async fn any_operation(&self) -> Option<OperationId> {
        let filter = OperationFilter { project: Some(self.project), ..OperationFilter::default() };
        let all = self.people.read(async |reader| reader.operations(&filter).await).await.ok()?;
        self.simulation.pick(&all).map(|operation| operation.id)
    }
}

async fn follow(
    simulation: &Arc<Simulation>,
    engine: &Arc<Engine>,
    caller: &Caller,
    workload: WorkloadId,
    member: &str,
    (project, until): (ProjectId, gpuaas_model::Timestamp),
) -> Result<(), CommandError> {
    use futures::StreamExt;
    let source = commands::logs::open(engine, caller, workload, member, None).await?;
    let held = engine.guard_access(&source.access).await?;
    let node = simulation.node(source.access.node().node);
    let Some(link) = node.link().filter(|link| link.enrolled == source.access.node()) else { return Ok(()) };
    let (of, lines) = (simulation.clone(), simulation.clone());
    let lines = futures::stream::unfold((), move |()| {
        let (simulation, ended) = (lines.clone(), link.ended.clone());
        async move {
            let wait = Duration::from_millis(simulation.between(50, 5_000));
            tokio::select! {
                biased;
                () = ended.cancelled() => None,
                () = simulation.scheduler.sleep(wait) => Some(((), ())),
            }
        }
    });
    let mut lines = Box::pin(held.guard(Box::pin(lines)));
    while lines.next().await.is_some() && of.scheduler.now() < until {
        oracles::check_effect(&of, Effect::Journal(source.access.node(), project));
    }
    Ok(())
}
