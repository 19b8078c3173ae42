//! Nodes whose connection could not be recorded: their unreachable timer continues.

use std::time::Duration;

use gpuaas_wire::session::ConnectionKind;
use tokio_util::sync::CancellationToken;

use super::control_plane::{ControlPlane, Recording, eventually, honest, in_time, node};

const UNREACHABLE_AFTER: Duration = Duration::from_secs(1);

async fn assert_unreachable_after(recording: Recording) {
    let control_plane = ControlPlane::with_unreachable_after(UNREACHABLE_AFTER).await;
    control_plane.connected(1, honest).await;
    control_plane.channel.shared.session(node(1)).unwrap().link.ended.cancel();
    eventually("its end is not recorded", async || control_plane.rows.sessions.lock().unwrap().is_empty()).await;
    *control_plane.rows.recording.lock().unwrap() = recording;
    let again = control_plane.serving(1, ConnectionKind::Control, honest).await;
    in_time("it is served", again).await.unwrap();
    assert!(control_plane.channel.shared.session(node(1)).is_err());
    eventually("the node is not reported unreachable", async || {
        *control_plane.rows.absent.lock().unwrap() == [node(1)]
    })
    .await;
    assert!(control_plane.rows.sessions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn node_whose_connection_is_not_recorded_becomes_unreachable() {
    assert_unreachable_after(Recording::Fails).await;
}

#[tokio::test]
async fn node_whose_connection_is_partly_recorded_becomes_unreachable() {
    assert_unreachable_after(Recording::FailsLate).await;
}

#[tokio::test]
async fn node_whose_recording_panics_becomes_unreachable() {
    assert_unreachable_after(Recording::Panics).await;
}

#[tokio::test]
async fn reconnected_node_does_not_become_unreachable() {
    let control_plane = ControlPlane::with_unreachable_after(UNREACHABLE_AFTER).await;
    let first = control_plane.connected(1, honest).await;
    control_plane.channel.shared.session(node(1)).unwrap().link.ended.cancel();
    in_time("the connection does not end", first).await.unwrap();
    control_plane.connected(1, honest).await;
    tokio::time::sleep(UNREACHABLE_AFTER * 2).await;
    assert!(control_plane.rows.absent.lock().unwrap().is_empty());
}

#[tokio::test]
async fn timers_ordered_before_the_service_runs_start_with_it() {
    let (control_plane, service) = ControlPlane::not_serving_yet(UNREACHABLE_AFTER).await;
    control_plane.channel.expect_reconnect(node(1));
    control_plane.channel.expect_reconnect(node(2));
    tokio::spawn(service.run(control_plane.rows.clone(), CancellationToken::new()));
    // A node that connects at once stops its timer.
    control_plane.connected(2, honest).await;
    eventually("the node is not reported unreachable", async || {
        *control_plane.rows.absent.lock().unwrap() == [node(1)]
    })
    .await;
    tokio::time::sleep(UNREACHABLE_AFTER).await;
    assert_eq!(*control_plane.rows.absent.lock().unwrap(), [node(1)]);
}
