//! What happens once faults have stopped and a person has done what the platform advised: the platform comes to rest. Where clusters are
//! followed, a member is lost for a while, and a host deviates for the last time; nobody but the platform acts.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{Code, Health, Lifecycle, MemberId, MemberState, Recovery, TaskType, Timestamp, WorkloadId};

use super::{QUIET, change_host, script::Action, settle::settle};
use crate::{
    cluster,
    faults::Failing,
    node::Node,
    oracles::{self, Oracle},
    people::People,
    simulation::Simulation,
};

/// Most times that the platform does something during [`QUIET`] and the person looks again.
const ROUNDS_MAX: usize = 12;
/// The member's node is cut off for this long.
const CUT_FOR: Duration = Duration::from_secs(90);
/// Within this time a node that is cut off counts as unreachable: after 15 s.
const CUT_NOTICED_WITHIN: Duration = Duration::from_secs(25);
/// Within this time a KubeNode that is not Ready is judged: after 10 s, and the time until another control plane follows the cluster.
const JUDGED_WITHIN: Duration = Duration::from_secs(55);
/// Within this time what has returned is well again.
const WELL_WITHIN: Duration = Duration::from_secs(30);

/// Returns when the platform did nothing for [`QUIET`].
pub(super) async fn come_to_rest(simulation: &Simulation, people: &People, workload: WorkloadId) -> Result<(), String> {
    for round in 0..ROUNDS_MAX {
        let began = simulation.scheduler.now();
        simulation.scheduler.sleep(QUIET).await;
        if is_at_rest(simulation, people, workload, began).await? && hosts_are_quiet(simulation, began, round) {
            return Ok(());
        }
        if simulation.unsettled().is_none() {
            settle(simulation, people, workload).await?;
        }
    }
    simulation.report_violation(Oracle::Drift, "the platform does not come to rest".to_owned());
    Ok(())
}

/// Returns true if no operation ran since `began`, and none is due.
async fn is_at_rest(
    simulation: &Simulation,
    people: &People,
    workload: WorkloadId,
    began: Timestamp,
) -> Result<bool, String> {
    let row = people.read(async |reader| reader.workload(workload).await).await?;
    let newest = people.read(async |reader| reader.newest_operation(workload).await).await?;
    let has_ended = newest.is_none_or(|operation| operation.ended_at.is_some_and(|ended| ended <= began));
    if row.lifecycle != Lifecycle::Running {
        return Ok(has_ended);
    }
    // A followed cluster may show only later that something is wrong.
    let is_well = row.recovery == Recovery::None || !simulation.faults().follows_clusters;
    Ok(has_ended && row.drift.due_at.is_none() && (is_well || simulation.unsettled().is_some()))
}

/// Returns true if no host was observed since `began`. A check may wait for 80 s, which is longer than the first round.
fn hosts_are_quiet(simulation: &Simulation, began: Timestamp, round: usize) -> bool {
    simulation.nodes().iter().all(|node| {
        let machine = node.machine();
        machine.observed_at.is_none_or(|at| at <= began) && (round > 0 || !machine.may_deviate())
    })
}

/// Cuts the node of a member off, lets its KubeNode be not Ready, and breaks the channel through which the cluster is followed. Both are
/// judged, and each judgment ends with its reason. A server is not cut off: its cluster would not answer.
pub(super) async fn lose_member(
    simulation: &Arc<Simulation>,
    people: &People,
    workload: WorkloadId,
) -> Result<(), String> {
    let Some((member, node)) = healthy_member(simulation, people, workload).await? else { return Ok(()) };
    let scheduler = &simulation.scheduler;
    let of_node = (!is_server(&node)).then_some("node_unreachable");
    if of_node.is_some() {
        simulation.log(&format!("{} is cut off", node.name));
        node.cut(simulation, CUT_FOR);
    }
    scheduler.sleep(CUT_NOTICED_WITHIN).await;
    simulation.log(&format!("the KubeNode {} is not Ready", node.name));
    simulation.kube().set_not_ready(&node.name, scheduler.now().plus(CUT_FOR * 2));
    // The notice is under way, or was just given.
    scheduler.sleep(Duration::from_secs(3)).await;
    simulation.nodes()[0].disconnect(None);
    scheduler.sleep(JUDGED_WITHIN).await;
    let of_cluster = Some("kube_node_not_ready");
    oracles::check_member(simulation, member, (of_node, of_cluster)).await;
    simulation.count("members lost while others were calm");
    scheduler.sleep(CUT_FOR - JUDGED_WITHIN).await;
    oracles::check_member(simulation, member, (None, of_cluster)).await;
    simulation.kube().calm_down();
    scheduler.sleep(WELL_WITHIN).await;
    oracles::check_member(simulation, member, (None, None)).await;
    Ok(())
}

/// Changes a host by hand; the first check of it fails.
pub(super) async fn drift(simulation: &Arc<Simulation>, people: &People, workload: WorkloadId) -> Result<(), String> {
    let Some((_, node)) = healthy_member(simulation, people, workload).await? else { return Ok(()) };
    let failing = Failing { code: Code::HostFailed, times: 1 };
    simulation.faults().tasks.insert((node.index, TaskType::Rke2Observe), failing);
    change_host(simulation, &node, &Action::EditConfig { node: node.index });
    Ok(())
}

/// Returns the last member that is ready and well, with its node; `None` if the workload is not well.
async fn healthy_member(
    simulation: &Simulation,
    people: &People,
    workload: WorkloadId,
) -> Result<Option<(MemberId, Arc<Node>)>, String> {
    let row = people.read(async |reader| reader.workload(workload).await).await?;
    if (row.lifecycle, row.recovery) != (Lifecycle::Running, Recovery::None) || !simulation.server_is_up() {
        return Ok(None);
    }
    let members = people.read(async |reader| reader.members_of(workload).await).await?;
    let well = members.iter().rev().filter(|member| {
        matches!(member.state, MemberState::Ready { .. }) && member.health == Health::Healthy && member.fault.is_none()
    });
    let mut placed = well.filter_map(|member| Some((member.id, simulation.node(member.place.node()?))));
    Ok(placed.find(|(_, node)| cluster::fault_of(simulation, node).is_none()))
}

/// The server runs on the first node.
fn is_server(node: &Node) -> bool {
    node.index == 0
}
