//! Nodes that answer the control plane's requests wrongly, slowly or never.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use gpuaas_model::{EnrolledNode, Timestamp};
use gpuaas_wire::{
    session::{ConnectionKind, JournalRequest, path},
    task::UnitReport,
};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::control_plane::{ControlPlane, enrolled, eventually, honest, in_time, node};
use crate::{ChannelError, link::Body};

const UNIT: &str = "rke2-server.service";

fn report(active: &str, number: i64) -> UnitReport {
    UnitReport {
        unit: UNIT.to_owned(),
        active: active.to_owned(),
        sub: "running".to_owned(),
        result: "success".to_owned(),
        n_restarts: 0,
        exec_main_status: 0,
        since: Timestamp::from_millis(number),
    }
}

fn journal() -> JournalRequest {
    JournalRequest { unit: UNIT.to_owned(), since: None, tail: None, follow: true }
}

/// Never answers requests to these paths.
fn silent_on(paths: &'static [&'static str]) -> impl super::control_plane::Behavior {
    move |path: String, _: Request<Incoming>| {
        paths.contains(&path.as_str()).then(|| Box::pin(std::future::pending()) as BoxFuture<'static, Response<Body>>)
    }
}

#[tokio::test]
async fn requests_to_an_unresponsive_node_time_out() {
    let control_plane = Arc::new(ControlPlane::listening().await);
    // Node 1 does not answer the key-set request, which comes before it has a session.
    let no_keys = control_plane.serving(1, ConnectionKind::Control, silent_on(&[path::KEYS])).await;
    control_plane.connected(2, silent_on(&[path::OBSERVE, path::CONNECTIONS])).await;
    let of = control_plane.clone();
    let unresponsive_later = move |path: String, request: Request<Incoming>| {
        let of = of.clone();
        (path == path::CONNECTIONS).then(|| {
            Box::pin(async move {
                of.open_requested(3, request, silent_on(&[path::TUNNEL, path::JOURNAL])).await;
                Response::new(crate::link::empty())
            }) as BoxFuture<'static, Response<Body>>
        })
    };
    control_plane.connected(3, unresponsive_later).await;
    let channel = &control_plane.channel;
    let request = journal();
    let all = Box::pin(async {
        tokio::join!(
            async { no_keys.await.unwrap() },
            async { channel.observe(node(2), vec![UNIT.to_owned()]).await.unwrap_err() },
            async { channel.journal(enrolled(2), &request).await.err().unwrap() },
            async { channel.open_tunnel(enrolled(3), 6_443).await.err().unwrap() },
            async { channel.journal(enrolled(3), &request).await.err().unwrap() },
        )
    });
    let ((), observe, bulk, tunnel, journal) = in_time("a request does not end", all).await;
    let late = ChannelError::Lost("it did not respond in time".to_owned());
    assert_eq!([observe, bulk, tunnel, journal], [late.clone(), late.clone(), late.clone(), late]);
    eventually("connections for the requests stay", async || {
        control_plane.channel.shared.connections.of(node(3)).len() == 1
    })
    .await;
}

#[tokio::test]
async fn bulk_connection_of_another_node_is_dropped() {
    let control_plane = Arc::new(ControlPlane::listening().await);
    control_plane.connected(2, honest).await;
    let of = control_plane.clone();
    let opened_by_other = move |path: String, request: Request<Incoming>| {
        let of = of.clone();
        (path == path::CONNECTIONS).then(|| {
            Box::pin(async move {
                // Node 2 opens the connection that was requested from node 1.
                of.open_requested(2, request, honest).await;
                Response::new(crate::link::empty())
            }) as BoxFuture<'static, Response<Body>>
        })
    };
    control_plane.connected(1, opened_by_other).await;
    let refused = in_time("the request does not end", control_plane.channel.journal(enrolled(1), &journal())).await;
    assert_eq!(refused.err(), Some(ChannelError::Lost("the node did not open the requested connection".to_owned())));
    eventually("the connection stays", async || control_plane.channel.shared.connections.of(node(2)).len() == 1).await;
}

#[tokio::test]
async fn requests_for_another_enrollment_are_refused() {
    let control_plane = ControlPlane::listening().await;
    control_plane.connected(1, honest).await;
    for epoch in [0, 2] {
        let other = EnrolledNode { epoch, ..enrolled(1) };
        let task = control_plane.channel.dispatch(other, "{}").await.err();
        let journal = control_plane.channel.journal(other, &journal()).await.err();
        let tunnel = control_plane.channel.open_tunnel(other, 6_443).await.err();
        assert_eq!([task, journal, tunnel], [const { Some(ChannelError::NotConnected) }; 3], "epoch {epoch}");
    }
}

#[tokio::test]
async fn tunnel_to_a_forbidden_port_is_refused() {
    let control_plane = ControlPlane::listening().await;
    control_plane.connected(1, honest).await;
    for port in [22, 0, 2_379, 10_250] {
        let refused = control_plane.channel.open_tunnel(enrolled(1), port).await.err();
        assert!(matches!(refused, Some(ChannelError::Refused(_))), "{port}: {refused:?}");
    }
}

#[tokio::test]
async fn flood_of_reports_is_throttled_and_the_last_one_arrives() {
    const FLOOD: i64 = 200;
    let control_plane = ControlPlane::listening().await;
    let flooding = |path: String, _: Request<Incoming>| {
        (path == path::OBSERVE).then(|| {
            let report = |number| report(if number % 2 == 0 { "active" } else { "failed" }, number);
            let others =
                stream::iter(["not-requested.service"]).map(move |unit| UnitReport { unit: unit.into(), ..report(0) });
            // Slow enough to be read one by one, and far more often than rows should change.
            let flood = stream::iter((1..=FLOOD).map(report)).then(|report| async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                report
            });
            let lines = others.chain(flood).map(|report| {
                let mut line = serde_json::to_vec(&report).unwrap();
                line.push(b'\n');
                Ok(Frame::data(Bytes::from(line)))
            });
            let body = StreamBody::new(lines.chain(stream::pending())).boxed_unsync();
            Box::pin(async move { Response::new(body) }) as BoxFuture<'static, Response<Body>>
        })
    };
    control_plane.connected(1, flooding).await;
    let began = Instant::now();
    control_plane.channel.observe(node(1), vec![UNIT.to_owned()]).await.unwrap();
    let last = Timestamp::from_millis(FLOOD);
    let arrived =
        || control_plane.rows.reports.lock().unwrap().last().is_some_and(|(_, reports)| reports[0].since == last);
    eventually("the last report does not arrive", async || arrived()).await;
    let forwarded = control_plane.rows.reports.lock().unwrap().clone();
    let waits: Vec<Duration> = forwarded.windows(2).map(|two| two[1].0 - two[0].0).collect();
    // May be slightly less than the 250 ms limit if the previous delivery was late.
    assert!(waits.iter().all(|wait| *wait >= Duration::from_millis(200)), "{waits:?}");
    assert!(forwarded.iter().all(|(_, reports)| reports.len() == 1 && reports[0].unit == UNIT));
    assert!(forwarded[0].0 - began < Duration::from_secs(1), "the first comes at once");
}

#[tokio::test]
async fn new_observation_ends_the_previous_one() {
    let control_plane = ControlPlane::listening().await;
    let endless = |path: String, _: Request<Incoming>| {
        (path == path::OBSERVE).then(|| {
            let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>()).boxed_unsync();
            Box::pin(async move { Response::new(body) }) as BoxFuture<'static, Response<Body>>
        })
    };
    control_plane.connected(1, endless).await;
    let session = control_plane.channel.shared.session(node(1)).unwrap();
    let first = session.restart_observation();
    control_plane.channel.observe(node(1), vec![UNIT.to_owned()]).await.unwrap();
    assert!(first.is_cancelled());
}
