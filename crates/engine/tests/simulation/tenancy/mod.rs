//! Simulates two tenants and an operator who send random requests: nodes change tenants and old requests are repeated. Nothing of a tenant
//! may reach a node that the tenant does not hold; `oracles/tenants.rs` checks that at every effect.

mod operator;
mod tenant;

use std::{sync::Arc, time::Duration};

use operator::Operator;
use tenant::Tenant;

use crate::{people::People, plane, simulation::Simulation};

/// Operator actions per seed.
const ROUNDS: usize = 60;
/// The wait after the last action, until the last late message has arrived.
const QUIET: Duration = Duration::from_secs(60);

/// Runs a seed until the operator has done its actions. Violations are recorded in the simulation.
pub(crate) async fn run_seed(simulation: Arc<Simulation>) -> Result<(), String> {
    let faults = simulation.faults().clone();
    (0..faults.replicas).for_each(|slot| plane::start(&simulation, slot, None));
    let people = People::of(&simulation);
    let projects = [people.project("red").await?, people.project("blue").await?];
    people.import_release().await?;
    let mut nodes = Vec::new();
    for index in 0..faults.nodes {
        nodes.push(people.enroll(index).await?);
    }
    simulation.set_nodes(nodes);
    simulation.nodes().iter().for_each(|node| node.start_agent(&simulation));
    people.all_connected().await?;
    simulation.start_faults();
    let [red, blue] = projects.map(|project| Tenant::of(&simulation, project));
    let operator = Operator::of(&simulation, projects);
    tokio::select! {
        biased;
        () = operator.work(ROUNDS) => {}
        () = red.work() => {}
        () = blue.work() => {}
    }
    simulation.stop_faults();
    simulation.scheduler.sleep(QUIET).await;
    people.verify_audit().await
}
