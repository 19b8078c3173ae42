//! Two tenants and an operator who do as they please: nodes change hands, old requests come again, and nothing of one tenant may reach a node that
//! it does not hold. `oracles/tenants.rs` judges that at the moment of every effect.

mod operator;
mod tenant;

use std::{sync::Arc, time::Duration};

use operator::Operator;
use tenant::Tenant;

use crate::{people::People, plane, world::World};

/// What the operator does in a seed, one after the other.
const ROUNDS: usize = 60;
/// After the last of it, until the last straggler was heard.
const QUIET: Duration = Duration::from_secs(60);

/// Plays a seed; what must never be is told to the world.
pub(crate) async fn play(world: Arc<World>) -> Result<(), String> {
    let faults = world.faults().clone();
    (0..faults.replicas).for_each(|slot| plane::start(&world, slot, None));
    let people = People::of(&world);
    let projects = [people.project("red").await?, people.project("blue").await?];
    people.release().await?;
    let mut nodes = Vec::new();
    for index in 0..faults.nodes {
        nodes.push(people.enroll(index).await?);
    }
    world.set_nodes(nodes);
    world.nodes().iter().for_each(|node| node.start_agent(&world));
    people.all_connected().await?;
    world.arm();
    let [red, blue] = projects.map(|project| Tenant::of(&world, project));
    let operator = Operator::of(&world, projects);
    tokio::select! {
        biased;
        () = operator.work(ROUNDS) => {}
        () = red.work() => {}
        () = blue.work() => {}
    }
    world.calm();
    world.scheduler.sleep(QUIET).await;
    Ok(())
}
