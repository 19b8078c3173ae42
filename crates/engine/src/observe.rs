//! Turns nodes' unit reports into the health of members. Reports are pushed and arrive long before a cluster notices by itself (Kubernetes
//! showed a lost node after 44 s).

use std::collections::BTreeSet;

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    Code, CorrelationId, EnrolledNode, Fault, Health, MemberState, NextAction, NodeId, OperationId, ProjectId,
};
use gpuaas_planner::{MemberView, judgments::Source, report::Judgment};
use gpuaas_store::{MemberRecord, Reader, Tx};
use gpuaas_wire::task::UnitReport;

use crate::{
    engine::Engine,
    error::EngineError,
    ownership::{self, AccessError},
    record::EventScope,
    rows::WorkloadRows,
    workload_status::refresh_workload,
};

/// Returns true if both judgments are the same apart from their evidence.
pub(crate) fn is_same(one: &Judgment, other: &Judgment) -> bool {
    let code = |of: &Judgment| of.fault.as_ref().map(|fault| fault.code.clone());
    one.health == other.health && code(one) == code(other)
}

/// A member with the health that its unit's report gives.
struct HealthChange {
    project: ProjectId,
    member: MemberRecord,
}

/// Returns true if the member is judged by its node, its unit and its cluster. Until it is ready, and while it is being drained, only its steps
/// judge it.
pub(crate) const fn is_judged(member: &MemberRecord) -> bool {
    matches!(member.state, MemberState::Ready { .. } | MemberState::Drained { .. })
}

/// Returns the nodes whose units may have changed with an operation that has ended: those of the present members and of those that it
/// removed. Another tenant may hold the nodes of members that were removed earlier.
pub(crate) fn nodes_after(operation: OperationId, members: &[MemberRecord]) -> BTreeSet<NodeId> {
    let is_concerned =
        |member: &&MemberRecord| member.state != MemberState::Removed || member.last_operation == Some(operation);
    members.iter().filter(is_concerned).filter_map(|member| member.place.node()).collect()
}

impl Engine {
    /// Applies a node's unit reports. Changes only members that hold this node in this enrollment, and takes the write lock only if one
    /// changes.
    pub async fn units_changed(&self, node: EnrolledNode, reports: &[UnitReport]) -> Result<(), EngineError> {
        if self.health_changes(&mut self.store().read().await?, node, reports).await?.is_empty() {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        for change in self.health_changes(&mut tx, node, reports).await? {
            self.write_health(&mut tx, change).await?;
        }
        Ok(tx.commit().await?)
    }

    /// The members whose health changes with these reports.
    async fn health_changes(
        &self,
        reader: &mut Reader,
        node: EnrolledNode,
        reports: &[UnitReport],
    ) -> Result<Vec<HealthChange>, EngineError> {
        let mut changes = Vec::new();
        for member in reader.members_on(node.node).await? {
            if !is_judged(&member) {
                continue;
            }
            let rows = WorkloadRows::load(reader, member.workload).await?;
            match ownership::for_member(reader, &rows.workload, &member).await {
                Ok(access) if access.node() == node => {}
                Ok(_) | Err(AccessError::NotHeld(_)) => continue,
                Err(AccessError::Store(error)) => return Err(error.into()),
            }
            changes.extend(self.health_change(&rows, member, reports));
        }
        Ok(changes)
    }

    fn health_change(
        &self,
        rows: &WorkloadRows,
        mut member: MemberRecord,
        reports: &[UnitReport],
    ) -> Option<HealthChange> {
        let entry = self.catalog().app(&rows.workload.app)?;
        let units = entry.app.units(&member.component_key);
        let report = reports.iter().rev().find(|report| units.contains(&report.unit))?;
        let view = rows.view();
        let before = member.judgment_of(Source::Unit);
        // Judgments by the cluster and reports of the controller are kept apart.
        let of = MemberView { health: before.health, ..view.member(member.id)?.clone() };
        let (health, fault) = entry.app.judge(&of, &view, report);
        let judgment = Judgment { health, fault };
        let same = is_same(&before, &judgment);
        member.set_judgment(Source::Unit, judgment);
        (!same).then_some(HealthChange { project: rows.workload.project, member })
    }

    async fn write_health(
        &self,
        tx: &mut Tx,
        HealthChange { project, member }: HealthChange,
    ) -> Result<(), EngineError> {
        let correlation = CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy);
        let events = EventScope { project, correlation };
        let member = tx.update_member(&member, member.state.name()).await?;
        events.member(tx, &member).await?;
        if bugs::on(Bug::HealthNotRefreshed) {
            return Ok(());
        }
        refresh_workload(tx, &events, member.workload).await
    }

    /// Sends each node the units that it must report: those of its members.
    pub async fn observe_nodes(&self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes.into_iter().collect::<BTreeSet<_>>() {
            match self.units_on(node).await {
                Ok(units) => self.nodes().observe(node, units).await,
                Err(error) => tracing::warn!(%node, %error, "the units to observe could not be read"),
            }
        }
    }

    /// The units of a node's members.
    pub async fn units_on(&self, node: NodeId) -> Result<Vec<String>, EngineError> {
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

    /// Marks every ready or drained member of an unreachable node as degraded, or clears that mark once the node is reachable.
    pub async fn node_reachability_changed(&self, node: NodeId, reachable: bool) -> Result<(), EngineError> {
        let mut tx = self.store().begin().await?;
        if self.change_reachability(&mut tx, node, reachable).await? {
            tx.commit().await?;
        }
        Ok(())
    }

    /// Does the same within a transaction; returns true if anything changed.
    pub(crate) async fn change_reachability(
        &self,
        tx: &mut Tx,
        node: NodeId,
        reachable: bool,
    ) -> Result<bool, EngineError> {
        let mut changed = false;
        for member in tx.members_on(node).await? {
            changed |= self.update_reachability(tx, member, reachable).await?;
        }
        Ok(changed)
    }

    async fn update_reachability(
        &self,
        tx: &mut Tx,
        mut member: MemberRecord,
        reachable: bool,
    ) -> Result<bool, EngineError> {
        let marked = member.judgment_of(Source::Node).fault.is_some();
        let Some(node) = member.place.node() else { return Ok(false) };
        if !is_judged(&member) || marked != reachable {
            return Ok(false);
        }
        let node = tx.node(node).await?;
        let workload = tx.workload(member.workload).await?;
        let events = EventScope {
            project: workload.project,
            correlation: CorrelationId::generate(&*self.ports().clock, &*self.ports().entropy),
        };
        let fault = (!reachable).then(|| Fault {
            code: Code::NodeUnreachable.to_string(),
            class: gpuaas_model::FaultClass::Manual,
            summary: format!("{}: {} has been unreachable since {}", member.name(), node.name, node.connectivity_since),
            evidence: None,
            next: NextAction::show_node("check whether the node and its agent run", &node.name),
        });
        // The last judgment by its unit still counts until the node, now connected, sends its first report.
        let health = if reachable { Health::Healthy } else { Health::Degraded };
        let state = member.state.name();
        member.set_judgment(Source::Node, Judgment { health, fault });
        let member = tx.update_member(&member, state).await?;
        events.member(tx, &member).await?;
        refresh_workload(tx, &events, member.workload).await?;
        Ok(true)
    }
}
