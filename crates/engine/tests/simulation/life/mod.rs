//! Simulates the whole life of a workload: two people of its project change it as they please, often at the same time and without regard
//! to what is going on, and its services fail. Then everything is calm and one person does what the platform advises.

mod person;
mod settle;

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AllocationState, ProjectId};
use gpuaas_store::AllocationFilter;
use person::Person;

use crate::{
    people::{Deployed, People},
    plane,
    simulation::Simulation,
};

/// Requests of the first person.
const ROUNDS: usize = 14;
/// The workload is deployed onto this many nodes; the others are free at first.
const MEMBERS: usize = 2;
/// The wait after the last request, until the last late message has arrived and the last lease has expired.
const QUIET: Duration = Duration::from_secs(75);

/// Runs a seed to its end. Violations are recorded in the simulation.
pub(crate) async fn run_seed(simulation: Arc<Simulation>) -> Result<Deployed, String> {
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
    let workload = people.workload_on(project, MEMBERS).await?;
    simulation.start_faults();
    let [ada, bob] = ["ada", "bob"].map(|name| Person::of(&simulation, name, project, workload));
    tokio::select! {
        biased;
        () = ada.work(ROUNDS) => {}
        () = bob.work(usize::MAX) => {}
        () = break_services(&simulation) => {}
    }
    simulation.stop_faults();
    simulation.kube().budget_blocks_until = None;
    settle::settle(&simulation, &people, workload).await?;
    release_free_nodes(&simulation, &people, project).await?;
    simulation.scheduler.sleep(QUIET).await;
    Ok(Deployed { project, workload })
}

/// Ends the units of random nodes, without end; some are damaged, so that only a repair starts them again. Deletes KubeNodes, and lets
/// budgets block evictions for a while.
async fn break_services(simulation: &Arc<Simulation>) {
    loop {
        simulation.scheduler.sleep(Duration::from_millis(simulation.between(20_000, 300_000))).await;
        let Some(node) = simulation.pick(simulation.nodes()) else { continue };
        match simulation.between(0, 10) {
            0..5 if node.machine().is_up(simulation.scheduler.now()) => {
                simulation.count("units ended");
                node.end_unit(simulation, simulation.between(0, 2) == 0).await;
            }
            5..7 if simulation.kube().delete(&node.name) => {
                simulation.count("KubeNodes deleted by hand");
                simulation.log(&format!("somebody deletes the KubeNode {}", node.name));
            }
            7..10 => {
                let until = simulation.scheduler.now().plus(Duration::from_secs(simulation.between(10, 1_200)));
                simulation.kube().budget_blocks_until = Some(until);
            }
            _ => {}
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
