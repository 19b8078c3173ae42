//! Nodes that change while they have many connections.

use std::{sync::atomic::Ordering, time::Duration};

use gpuaas_trust::{ALPN_FETCH, NODE_CERTIFICATE_LIFE};
use gpuaas_wire::session::ConnectionKind;
use http::{Method, StatusCode};

use super::control_plane::{
    ControlPlane, eventually, honest, in_time, node, now, presented, seconds_ago, send_request,
};
use crate::link::empty;

#[tokio::test]
async fn a_node_that_changes_is_looked_up_once_for_all_its_connections() {
    let control_plane = ControlPlane::listening().await;
    let shown = presented(&control_plane.authority, 1, now());
    let held: Vec<_> =
        (0..100).map(|_| control_plane.channel.shared.connections.enter(shown.clone()).unwrap()).collect();
    *control_plane.rows.lookup_time.lock().unwrap() = Duration::from_millis(50);
    for _ in 0..100 {
        control_plane.channel.recheck(node(1));
    }
    tokio::time::sleep(Duration::from_millis(25)).await;
    // A check is already running and may have read the rows before this change.
    control_plane.channel.recheck(node(1));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(control_plane.rows.lookups.load(Ordering::SeqCst), 2);
    control_plane.rows.revoked.lock().unwrap().insert(node(1));
    control_plane.channel.recheck(node(1));
    eventually("a connection stays open", async || held.iter().all(|place| place.end.is_cancelled())).await;
    assert_eq!(control_plane.rows.lookups.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn recheck_all_looks_up_a_few_nodes_at_a_time() {
    let control_plane = ControlPlane::listening().await;
    let held: Vec<_> = (1..=100)
        .map(|number| {
            control_plane.channel.shared.connections.enter(presented(&control_plane.authority, number, now())).unwrap()
        })
        .collect();
    *control_plane.rows.lookup_time.lock().unwrap() = Duration::from_millis(20);
    control_plane.rows.revoked.lock().unwrap().extend((1..=100).map(node));
    control_plane.channel.recheck_all();
    eventually("a connection stays open", async || held.iter().all(|place| place.end.is_cancelled())).await;
    assert_eq!(control_plane.rows.lookups_running_max.load(Ordering::SeqCst), 32);
}

#[tokio::test]
async fn connection_ends_when_its_certificate_expires() {
    let control_plane = ControlPlane::listening().await;
    let about_to_end = seconds_ago(i64::try_from(NODE_CERTIFICATE_LIFE.as_secs()).unwrap() - 3);
    let control = control_plane.serving_by(1, about_to_end, ConnectionKind::Control, honest).await;
    let mut fetch = control_plane.fetch(control_plane.tls_config(2, about_to_end, ALPN_FETCH)).await.unwrap();
    let path = "/v1/secrets/0198c0de-7a3b-7c11-9b54-0242ac120002";
    assert_eq!(send_request(&mut fetch, Method::GET, path, empty()).await.0, StatusCode::OK);
    eventually("the node is not admitted", async || control_plane.channel.shared.session(node(1)).is_ok()).await;
    in_time("the channel outlives its certificate", control).await.unwrap();
    eventually("the session stays", async || control_plane.channel.shared.session(node(1)).is_err()).await;
    // A fetch connection is checked for each request; it ends when its node is checked again.
    let refused = send_request(&mut fetch, Method::GET, path, empty()).await;
    assert_eq!(refused, (StatusCode::FORBIDDEN, "certificate_expired".to_owned()));
    control_plane.channel.recheck(node(2));
    eventually("the connection stays open after its certificate expired", async || {
        control_plane.channel.shared.connections.of(node(2)).is_empty()
    })
    .await;
}
