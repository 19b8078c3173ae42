//! Checks that what a followed cluster shows of a member is judged, and that this judgment and those by other sources are kept apart.

use gpuaas_model::{Lifecycle, MemberId, MemberState};
use gpuaas_planner::judgments::Source;
use gpuaas_store::MemberRecord;

use super::{Oracle, Rows};
use crate::{cluster, simulation::Simulation};

/// Judges the members at the end: each has the fault that its KubeNode shows, or none.
pub(super) fn check(simulation: &Simulation, rows: &Rows, violations: &mut Vec<String>) {
    if !is_followed(simulation, rows) {
        return;
    }
    // A member that is being drained is judged by its steps alone.
    let is_judged =
        |member: &&MemberRecord| matches!(member.state, MemberState::Ready { .. } | MemberState::Drained { .. });
    for member in rows.members.iter().filter(is_judged) {
        let Some(node) = member.place.node().map(|node| simulation.node(node)) else { continue };
        let (expected, found) = (cluster::fault_of(simulation, &node), code(member, Source::Cluster));
        if found.as_deref() != expected {
            violations.push(format!("{} is judged {found:?} by its cluster, which shows {expected:?}", member.name()));
        }
    }
}

/// Judges a member in between: it has these faults by its node and by its cluster, or none.
pub(crate) async fn check_member(
    simulation: &Simulation,
    member: MemberId,
    (of_node, of_cluster): (Option<&str>, Option<&str>),
) {
    let row = async { simulation.store.read().await?.member(member).await };
    match row.await {
        Ok(row) => {
            let (node, cluster) = (code(&row, Source::Node), code(&row, Source::Cluster));
            if (node.as_deref(), cluster.as_deref()) != (of_node, of_cluster) {
                let expected = format!("and not {of_node:?} and {of_cluster:?}");
                let what =
                    format!("{} is judged {node:?} by its node and {cluster:?} by its cluster, {expected}", row.name());
                simulation.report_violation(Oracle::Judgments, what);
            }
        }
        Err(error) => simulation.report_violation(Oracle::Judgments, format!("a member cannot be read: {error}")),
    }
}

/// Returns true if the cluster of the running workload is followed: its server, which runs on the first node, is in service and up.
pub(super) fn is_followed(simulation: &Simulation, rows: &Rows) -> bool {
    let first = simulation.nodes().first().map(|node| node.id);
    let has_server = rows.members.iter().any(|member| member.place.node() == first && member.state.is_in_service());
    let follows_clusters = simulation.faults().follows_clusters;
    follows_clusters && rows.workload.lifecycle == Lifecycle::Running && has_server && simulation.server_is_up()
}

fn code(member: &MemberRecord, source: Source) -> Option<String> {
    member.judgment_of(source).fault.map(|fault| fault.code)
}
