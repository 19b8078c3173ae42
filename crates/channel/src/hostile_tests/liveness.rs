//! Nodes whose connection could not be recorded: their unreachable timer goes on.

use std::time::Duration;

use gpuaas_wire::session::ConnectionKind;

use super::world::{Recording, World, eventually, honest, node, soon};

const GIVEN_UP_AFTER: Duration = Duration::from_secs(1);

async fn is_missed_after(recording: Recording) {
    let world = World::giving_up_after(GIVEN_UP_AFTER).await;
    world.connected(1, honest).await;
    world.channel.shared.session(node(1)).unwrap().link.ended.cancel();
    eventually("its end is not recorded", || world.rows.sessions.lock().unwrap().is_empty()).await;
    *world.rows.recording.lock().unwrap() = recording;
    let again = world.serving(1, ConnectionKind::Control, honest).await;
    soon("it is served", again).await.unwrap();
    assert!(world.channel.shared.session(node(1)).is_err());
    eventually("nobody misses it", || *world.rows.absent.lock().unwrap() == [node(1)]).await;
    assert!(world.rows.sessions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_node_whose_connection_is_not_recorded_is_missed() {
    is_missed_after(Recording::Fails).await;
}

#[tokio::test]
async fn a_node_whose_connection_is_recorded_in_part_is_missed() {
    is_missed_after(Recording::FailsLate).await;
}

#[tokio::test]
async fn a_node_whose_recording_panics_is_missed() {
    is_missed_after(Recording::Panics).await;
}

#[tokio::test]
async fn a_node_that_is_back_is_not_missed() {
    let world = World::giving_up_after(GIVEN_UP_AFTER).await;
    let first = world.connected(1, honest).await;
    world.channel.shared.session(node(1)).unwrap().link.ended.cancel();
    soon("it goes on", first).await.unwrap();
    world.connected(1, honest).await;
    tokio::time::sleep(GIVEN_UP_AFTER * 2).await;
    assert!(world.rows.absent.lock().unwrap().is_empty());
}
