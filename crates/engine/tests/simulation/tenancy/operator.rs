//! The operator: allocates nodes to projects, releases them, enrolls them again with or without a reimage, resumes and decommissions
//! workloads, and pings nodes.

use std::{sync::Arc, time::Duration};

use gpuaas_engine::{
    Precondition,
    commands::{self, node::Forced},
};
use gpuaas_model::{AllocationState, NodeState, ProjectId};
use gpuaas_store::{AllocationFilter, NodeFilter, NodeRecord, WorkloadFilter};

use crate::{
    people::{People, accepted_answer},
    simulation::Simulation,
};

pub(crate) struct Operator {
    simulation: Arc<Simulation>,
    people: People,
    projects: [ProjectId; 2],
}

impl Operator {
    pub(crate) fn of(simulation: &Arc<Simulation>, projects: [ProjectId; 2]) -> Self {
        Self { simulation: simulation.clone(), people: People::of(simulation), projects }
    }

    pub(crate) async fn work(&self, rounds: usize) {
        for _ in 0..rounds {
            self.simulation.scheduler.sleep(Duration::from_millis(self.simulation.between(200, 20_000))).await;
            match self.simulation.between(0, 100) {
                0..35 => self.allocate().await,
                35..65 => self.release().await,
                65..85 => self.enroll_again().await,
                85..92 => self.resume().await,
                92..96 => self.decommission().await,
                _ => self.ping().await,
            }
        }
    }

    async fn allocate(&self) {
        let free = self.nodes(NodeState::Active).await;
        let (Some(node), Some(project)) = (self.simulation.pick(&free), self.simulation.pick(&self.projects)) else {
            return;
        };
        let asked = self.people.try_once(move |engine, caller| {
            Box::pin(async move { commands::allocation::create(&engine, &caller, project, node.id).await })
        });
        accepted_answer(&self.simulation, "allocate", asked.await);
    }

    async fn release(&self) {
        let filter = AllocationFilter { state: Some(AllocationState::Active), ..AllocationFilter::default() };
        let held = self.people.read(async |reader| reader.allocations(&filter).await).await.unwrap_or_default();
        let Some(held) = self.simulation.pick(&held) else { return };
        let asked = self.people.try_once(move |engine, caller| {
            Box::pin(async move { commands::allocation::release(&engine, &caller, held.id, &Precondition::Any).await })
        });
        if accepted_answer(&self.simulation, "release", asked.await).is_some() {
            self.simulation.count("nodes taken back");
        }
    }

    /// Resets a node that needs a reimage, or issues a new enrollment for a registered one, and enrolls its machine again. If there is
    /// neither, sometimes tries to reset an active node by force, which is refused while a project holds it.
    async fn enroll_again(&self) {
        let mut left = self.nodes(NodeState::NeedsReimage).await;
        left.extend(self.nodes(NodeState::Registered).await);
        let is_forced = left.is_empty() && self.simulation.between(0, 4) == 0;
        if is_forced {
            left = self.nodes(NodeState::Active).await;
        }
        let Some(node) = self.simulation.pick(&left) else { return };
        let is_reimaged = self.simulation.between(0, 2) == 0;
        // A careless operator uses force if the machine was not reimaged.
        let forced = (is_forced || !is_reimaged).then(|| Forced { reason: "it is in order".to_owned() });
        let id = node.id;
        let string = self.people.try_once(move |engine, caller| {
            Box::pin(async move {
                match node.state {
                    NodeState::Registered => {
                        commands::node::issue_enrollment(&engine, &caller, id, &Precondition::Any, forced.as_ref())
                            .await
                    }
                    _ => commands::node::reset(&engine, &caller, id, &Precondition::Any, forced.as_ref()).await,
                }
            })
        });
        let Some((_, string)) = accepted_answer(&self.simulation, "reset", string.await) else { return };
        match self.people.redeem(id, &string, is_reimaged).await {
            Ok(identity) => {
                self.simulation.count(if is_reimaged { "nodes reimaged" } else { "nodes not reimaged" });
                self.simulation.node(id).enroll_again(&self.simulation, identity, is_reimaged);
            }
            Err(why) => self.simulation.log(&format!("not enrolled: {why}")),
        }
    }

    /// Resumes a random workload of any tenant.
    async fn resume(&self) {
        if let Some(workload) = self.any_workload().await {
            let asked = self.people.try_once(move |engine, caller| {
                Box::pin(
                    async move { commands::workload::resume(&engine, &caller, workload, &Precondition::Any).await },
                )
            });
            accepted_answer(&self.simulation, "operator's resume", asked.await);
        }
    }

    async fn decommission(&self) {
        if let Some(workload) = self.any_workload().await {
            let asked = self.people.try_once(move |engine, caller| {
                Box::pin(async move {
                    commands::workload::decommission(&engine, &caller, workload, &Precondition::Any).await
                })
            });
            accepted_answer(&self.simulation, "operator's decommission", asked.await);
        }
    }

    async fn ping(&self) {
        let nodes = self.nodes(NodeState::Active).await;
        let Some(node) = self.simulation.pick(&nodes) else { return };
        let asked = self.people.try_once(move |engine, caller| {
            Box::pin(async move { commands::ping::ping(&engine, &caller, node.id).await })
        });
        accepted_answer(&self.simulation, "ping", asked.await);
    }

    async fn any_workload(&self) -> Option<gpuaas_model::WorkloadId> {
        let filter = WorkloadFilter::default();
        let all = self.people.read(async |reader| reader.workloads(&filter).await).await.unwrap_or_default();
        self.simulation.pick(&all).map(|workload| workload.id)
    }

    async fn nodes(&self, state: NodeState) -> Vec<NodeRecord> {
        let filter = NodeFilter { state: Some(state), ..NodeFilter::default() };
        self.people.read(async |reader| reader.nodes(&filter).await).await.unwrap_or_default()
    }
}
