//! The operator: takes free nodes back, reimages their machines and gives them to the project again.

use std::sync::Arc;

use gpuaas_engine::{Precondition, commands};
use gpuaas_model::{AllocationState, NodeState, ProjectId, Timestamp};
use gpuaas_store::AllocationFilter;
use gpuaas_trust::SecretText;

use super::script::{Action, ScriptEntry};
use crate::{
    node::Node,
    oracles::Oracle,
    people::{People, message},
    simulation::Simulation,
};

pub(crate) struct Operator {
    simulation: Arc<Simulation>,
    people: People,
    project: ProjectId,
}

impl Operator {
    pub(crate) fn of(simulation: &Arc<Simulation>, project: ProjectId) -> Self {
        Self { simulation: simulation.clone(), people: People::of(simulation), project }
    }

    /// Replaces machines, as the script says, which began at that time. Returns when every one is in the project again.
    pub(crate) async fn work(&self, began: Timestamp, entries: &[ScriptEntry]) -> Result<(), String> {
        for entry in entries {
            if let Action::ReplaceMachine { node } = entry.action {
                self.simulation.scheduler.sleep_until(began.plus(entry.at)).await;
                self.replace_machine(&self.simulation.nodes()[node]).await?;
            }
        }
        Ok(())
    }

    async fn replace_machine(&self, node: &Arc<Node>) -> Result<(), String> {
        let filter = AllocationFilter {
            node: Some(node.id),
            state: Some(AllocationState::Active),
            ..AllocationFilter::default()
        };
        let Some(held) = self.people.read(async |reader| reader.allocations(&filter).await).await?.pop() else {
            return Ok(());
        };
        if let Err(refused) = self.people.release(held.id).await {
            self.simulation.log(&format!("{} is not taken back: {refused}", node.name));
        }
        // A release whose answer was lost is refused when it is repeated.
        if self.state(node).await? != NodeState::NeedsReimage {
            return Ok(());
        }
        if !node.machine().is_clean() {
            let what = format!("{} was released with residue", node.name);
            self.simulation.report_violation(Oracle::Residue, what);
        }
        self.simulation.count("machines replaced");
        self.enroll_again(node).await?;
        self.people.allocation(self.project, node.id).await
    }

    /// Reimages the machine and enrolls it, until it is connected.
    async fn enroll_again(&self, node: &Arc<Node>) -> Result<(), String> {
        let mut has_identity = false;
        loop {
            let state = self.state(node).await?;
            match state {
                NodeState::Active => return Ok(()),
                NodeState::Retired => return Err(format!("{} is retired", node.name)),
                NodeState::Enrolled if has_identity => {}
                NodeState::Registered | NodeState::Enrolled | NodeState::NeedsReimage => {
                    match self.enrollment(node, state).await {
                        Ok(string) => has_identity = self.redeem(node, &string).await,
                        Err(refused) => self.simulation.log(&format!("{} is not enrolled: {refused}", node.name)),
                    }
                }
            }
            self.people.pause().await;
        }
    }

    async fn enrollment(&self, node: &Arc<Node>, state: NodeState) -> Result<SecretText, String> {
        let id = node.id;
        let asked = self.people.ask(move |engine, caller| {
            Box::pin(async move {
                match state {
                    NodeState::NeedsReimage => {
                        commands::node::reset(&engine, &caller, id, &Precondition::Any, None).await
                    }
                    _ => commands::node::issue_enrollment(&engine, &caller, id, &Precondition::Any, None).await,
                }
            })
        });
        asked.await.map(|(_, string)| string).map_err(message)
    }

    /// Returns true if the node has a new identity.
    async fn redeem(&self, node: &Arc<Node>, string: &SecretText) -> bool {
        match self.people.redeem(node.id, string, true).await {
            Ok(identity) => {
                node.enroll_again(&self.simulation, identity, true);
                true
            }
            Err(refused) => {
                self.simulation.log(&format!("{} is not enrolled: {refused}", node.name));
                false
            }
        }
    }

    async fn state(&self, node: &Arc<Node>) -> Result<NodeState, String> {
        let id = node.id;
        self.people.read(async |reader| reader.node(id).await).await.map(|row| row.state)
    }
}
