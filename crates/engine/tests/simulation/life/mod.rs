//! Simulates the whole life of a workload: two people of its project change it as they please, often at the same time and without regard
//! to what is going on, its controller reports, the operator replaces free machines, and its services fail. Then everything is calm and one
//! person does what the platform advises.

mod calm;
mod controller;
pub(crate) mod in_order;
mod operator;
mod person;
pub(crate) mod script;
mod settle;

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AllocationState, ProjectId, Timestamp, WorkloadId};
use gpuaas_store::AllocationFilter;

use self::{
    controller::Controller,
    operator::Operator,
    person::Person,
    script::{Action, Script, ScriptEntry},
};
use crate::{
    node::Node,
    oracles,
    people::{Deployed, People},
    plane,
    simulation::Simulation,
};

/// The workload is deployed onto this many nodes; the others are free at first.
const MEMBERS: usize = 2;
/// The pause between two checks that everything that waits is explained.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// The wait after the last request, until the last late message has arrived and the last lease has expired.
const QUIET: Duration = Duration::from_secs(75);

/// Runs a seed to its end. Violations are recorded in the simulation.
pub(crate) async fn run_seed(simulation: Arc<Simulation>, script: Script) -> Result<Deployed, String> {
    let faults = simulation.faults().clone();
    (0..faults.replicas).for_each(|slot| plane::start(&simulation, slot, None));
    let people = People::of(&simulation);
    let project = people.project("lab").await?;
    people.import_release().await?;
    let mut nodes = Vec::new();
    for index in 0..faults.nodes {
        nodes.push(people.enroll(index).await?);
    }
    simulation.set_nodes(nodes);
    simulation.nodes().iter().for_each(|node| node.start_agent(&simulation));
    people.all_connected().await?;
    for node in simulation.nodes() {
        people.allocation(project, node.id).await?;
    }
    if script.is_in_order {
        // The deployment may be cancelled, too.
        simulation.start_faults();
    }
    let workload = people.workload_on(project, MEMBERS).await?;
    if script.is_in_order {
        in_order::work(&simulation, &people, (project, workload), &script).await?;
        settle::settle(&simulation, &people, workload).await?;
        simulation.scheduler.sleep(QUIET).await;
        return Ok(Deployed { project, workload });
    }
    let controller = Controller::create(&simulation, project, workload).await?;
    simulation.start_faults();
    let began = simulation.scheduler.now();
    let [ada, bob] = [0, 1].map(|index| Person::of(&simulation, index, project, workload));
    let acts = async {
        tokio::join!(
            biased;
            ada.work(began, &script.entries),
            bob.work(began, &script.entries),
            break_services(&simulation, began, &script.entries),
            report(&simulation, &controller, began, &script.entries),
            check_waits(&simulation, workload),
        );
    };
    let until_calm = async {
        tokio::select! {
            biased;
            () = simulation.scheduler.sleep_until(began.plus(script.calm_at)) => {}
            () = acts => {}
        }
        simulation.stop_faults();
        simulation.kube().calm_down();
    };
    let operator = Operator::of(&simulation, project);
    let ((), replaced) = tokio::join!(biased; until_calm, operator.work(began, &script.entries));
    replaced?;
    controller.withdraw().await;
    settle::settle(&simulation, &people, workload).await?;
    release_free_nodes(&simulation, &people, project).await?;
    calm::come_to_rest(&simulation, &people, workload).await?;
    let follows_clusters = simulation.faults().follows_clusters;
    if follows_clusters {
        calm::lose_member(&simulation, &people, workload).await?;
        calm::drift(&simulation, &people, workload).await?;
        calm::come_to_rest(&simulation, &people, workload).await?;
    }
    Ok(Deployed { project, workload })
}

/// Ends units, changes nodes and KubeNodes by hand, and lets budgets block evictions, as the script says.
async fn break_services(simulation: &Arc<Simulation>, began: Timestamp, entries: &[ScriptEntry]) {
    for entry in entries {
        if matches!(entry.action, Action::Request { .. } | Action::Report { .. } | Action::ReplaceMachine { .. }) {
            continue;
        }
        simulation.scheduler.sleep_until(began.plus(entry.at)).await;
        match entry.action {
            Action::EndUnit { node, is_damaged } => {
                let node = &simulation.nodes()[node];
                if node.machine().is_up(simulation.scheduler.now()) {
                    simulation.count("units ended");
                    node.end_unit(simulation, is_damaged).await;
                }
            }
            Action::BlockEvictions { seconds } => {
                let until = simulation.scheduler.now().plus(Duration::from_secs(seconds));
                simulation.kube().budget_blocks_until = Some(until);
            }
            Action::EditConfig { node } | Action::DisableUnit { node, .. } => {
                change_host(simulation, &simulation.nodes()[node], &entry.action);
            }
            Action::DeleteKubeNode { node } | Action::NotReady { node, .. } | Action::RemoveLabels { node } => {
                change_kube_node(simulation, &simulation.nodes()[node].name, &entry.action);
            }
            Action::Request { .. } | Action::Report { .. } | Action::ReplaceMachine { .. } => {}
        }
    }
}

/// A person changes something on a host, of which its agent hints.
fn change_host(simulation: &Arc<Simulation>, node: &Arc<Node>, action: &Action) {
    let (is_changed, what) = match action {
        Action::EditConfig { .. } => (node.machine().edit_config(), "configurations edited by hand"),
        Action::DisableUnit { is_masked, .. } => (node.machine().disable_unit(*is_masked), "units disabled by hand"),
        _ => return,
    };
    if is_changed {
        simulation.count(what);
        simulation.log(&format!("{}: {what}", node.name));
        node.hint_drift(simulation);
    }
}

/// A person changes a KubeNode, or it is not Ready by itself.
fn change_kube_node(simulation: &Simulation, name: &str, action: &Action) {
    let (is_changed, what) = match action {
        Action::DeleteKubeNode { .. } => (simulation.kube().delete(name), "KubeNodes deleted by hand"),
        Action::NotReady { seconds, .. } => {
            let until = simulation.scheduler.now().plus(Duration::from_secs(*seconds));
            (simulation.kube().set_not_ready(name, until), "KubeNodes not ready")
        }
        Action::RemoveLabels { .. } => (simulation.kube().set_labelled(name, false), "labels removed by hand"),
        _ => return,
    };
    if is_changed {
        simulation.count(what);
        simulation.log(&format!("{name}: {what}"));
    }
}

/// Checks repeatedly, without end, that everything that waits is explained.
async fn check_waits(simulation: &Arc<Simulation>, workload: WorkloadId) {
    loop {
        simulation.scheduler.sleep(CHECK_EVERY).await;
        oracles::check_explained(simulation, workload).await;
    }
}

/// Reports of the controller, as the script says.
async fn report(simulation: &Arc<Simulation>, controller: &Controller, began: Timestamp, entries: &[ScriptEntry]) {
    for entry in entries {
        if let Action::Report { is_stale, is_healthy, member } = entry.action {
            simulation.scheduler.sleep_until(began.plus(entry.at)).await;
            controller.report(is_stale, is_healthy, member).await;
        }
    }
}

/// Releases every allocation that no member uses.
async fn release_free_nodes(simulation: &Simulation, people: &People, project: ProjectId) -> Result<(), String> {
    let filter = AllocationFilter {
        project: Some(project),
        state: Some(AllocationState::Active),
        ..AllocationFilter::default()
    };
    for allocation in people.read(async |reader| reader.allocations(&filter).await).await? {
        if let Err(refused) = people.release(allocation.id).await {
            simulation.log(&format!("not released: {refused}"));
        }
    }
    Ok(())
}
