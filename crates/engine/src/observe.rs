//! What nodes say of their units becomes the health of members: pushed, and long before a cluster notices by itself
//! (Kubernetes showed a lost node after 44 s).

use std::collections::BTreeSet;

use gpuaas_model::{CorrelationId, EventKind, Health, MemberState, NodeId};
use gpuaas_planner::status::{OperationView, status};
use gpuaas_store::{MemberRecord, StoreError, Tx};
use gpuaas_wire::task::UnitReport;

use crate::{engine::Engine, record::Story, rows::WorkloadRows};

impl Engine {
    /// Takes a node's report about one of its units. Changes nothing but the members on that very node.
    pub async fn unit_changed(&self, node: NodeId, report: &UnitReport) -> Result<(), StoreError> {
        let mut tx = self.store().begin().await?;
        let mut changed = false;
        for member in tx.members_on(node).await? {
            changed |= self.judge_member(&mut tx, member, report).await?;
        }
        if changed { tx.commit().await } else { Ok(()) }
    }

    async fn judge_member(&self, tx: &mut Tx, member: MemberRecord, report: &UnitReport) -> Result<bool, StoreError> {
        // While a member is on its way, its steps follow the unit themselves and know more.
        if !matches!(member.state, MemberState::Ready { .. }) {
            return Ok(false);
        }
        let rows = WorkloadRows::load(tx, member.workload).await?;
        let Some(entry) = self.catalog().app(&rows.workload.app) else { return Ok(false) };
        if !entry.app.units(&member.component_key).contains(&report.unit) {
            return Ok(false);
        }
        let view = rows.view();
        let Some(seen) = view.member(member.id) else { return Ok(false) };
        let (health, fault) = entry.app.judge(seen, report);
        if health == member.health
            && fault.as_ref().map(|fault| &fault.code) == member.fault.as_ref().map(|fault| &fault.code)
        {
            return Ok(false);
        }
        let story = Story {
            project: rows.workload.project,
            correlation: CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy),
        };
        let state = member.state.name();
        let member = tx.update_member(&MemberRecord { health, fault, ..member }, state).await?;
        story.member(tx, &member).await?;
        self.refresh_workload(tx, &story, member.workload).await?;
        Ok(true)
    }

    /// Brings a workload's status in line with its members and its newest operation.
    pub(crate) async fn refresh_workload(
        &self,
        tx: &mut Tx,
        story: &Story,
        workload: gpuaas_model::WorkloadId,
    ) -> Result<(), StoreError> {
        let newest = tx.newest_operation(workload).await?;
        let rows = match newest {
            Some(operation) => Some(crate::rows::OperationRows::load(tx, operation.id).await?),
            None => None,
        };
        let mut of = match &rows {
            Some(rows) => rows.of.clone(),
            None => WorkloadRows::load(tx, workload).await?,
        };
        let steps = rows.as_ref().map(crate::rows::OperationRows::progress).unwrap_or_default();
        let operation = rows.as_ref().map(|rows| OperationView {
            kind: rows.operation.kind,
            state: rows.operation.state,
            steps: &steps,
        });
        let before = of.workload.status();
        let after = status(&before, &of.view(), operation.as_ref(), of.workload.fault.as_ref());
        if before != after {
            of.workload.set_status(&after);
            let workload = tx.update_workload(&of.workload).await?;
            story.workload(tx, EventKind::WorkloadChanged, &workload).await?;
        }
        Ok(())
    }

    /// Tells nodes which units matter now: those of the members that live there.
    pub async fn observe_nodes(&self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes.into_iter().collect::<BTreeSet<_>>() {
            match self.units_on(node).await {
                Ok(units) => self.nodes().observe(node, units).await,
                Err(error) => tracing::warn!(%node, %error, "could not tell which units to observe"),
            }
        }
    }

    /// The units of the members that live on a node.
    pub async fn units_on(&self, node: NodeId) -> Result<Vec<String>, StoreError> {
        let mut reader = self.store().read().await?;
        let mut units = BTreeSet::new();
        for member in reader.members_on(node).await? {
            let workload = reader.workload(member.workload).await?;
            if let Some(entry) = self.catalog().app(&workload.app)
                && !matches!(member.state, MemberState::Pending)
            {
                units.extend(entry.app.units(&member.component_key));
            }
        }
        Ok(units.into_iter().collect())
    }

    /// Marks every ready member of a node that cannot be reached as degraded, or takes that back when it can again.
    pub async fn node_reachability_changed(&self, node: NodeId, reachable: bool) -> Result<(), StoreError> {
        let mut tx = self.store().begin().await?;
        let mut changed = false;
        for member in tx.members_on(node).await? {
            changed |= self.judge_reachability(&mut tx, member, reachable).await?;
        }
        if changed { tx.commit().await } else { Ok(()) }
    }

    async fn judge_reachability(&self, tx: &mut Tx, member: MemberRecord, reachable: bool) -> Result<bool, StoreError> {
        const CODE: &str = "node_unreachable";
        let marked = member.fault.as_ref().is_some_and(|fault| fault.code == CODE);
        if !matches!(member.state, MemberState::Ready { .. }) || marked != reachable {
            return Ok(false);
        }
        let node = tx.node(member.node).await?;
        let workload = tx.workload(member.workload).await?;
        let story = Story {
            project: workload.project,
            correlation: CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy),
        };
        let fault = (!reachable).then(|| gpuaas_model::Fault {
            code: CODE.to_owned(),
            class: gpuaas_model::FaultClass::Manual,
            summary: format!("{} has had no channel since {}", node.name, node.connectivity_since),
            evidence: None,
            next: gpuaas_model::NextAction {
                text: "see whether the node and its agent run".to_owned(),
                command: Some(format!("gpuaas node show {}", node.name)),
            },
        });
        // Reachable again: healthy until its unit's report, which the node sends first thing, says otherwise.
        let health = if reachable { Health::Healthy } else { Health::Degraded };
        let state = member.state.name();
        let member = tx.update_member(&MemberRecord { health, fault, ..member }, state).await?;
        story.member(tx, &member).await?;
        self.refresh_workload(tx, &story, member.workload).await?;
        Ok(true)
    }
}
