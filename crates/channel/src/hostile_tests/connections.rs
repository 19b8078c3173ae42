//! Too many connections, and slow ones.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use gpuaas_wire::session::{ConnectionKind, Hello, path};
use http::{Method, StatusCode};
use tokio::{io::AsyncReadExt, net::TcpStream, time::Instant};

use super::control_plane::{
    ControlPlane, eventually, fetching, hello, honest, in_time, json, node, presented, seconds_ago, send_request,
};
use crate::{connections::CONNECTIONS_PER_NODE_MAX, handshake_queue::RUNNING_MAX, link::empty};

const SECRET: &str = "/v1/secrets/0198c0de-7a3b-7c11-9b54-0242ac120002";

#[tokio::test]
async fn handshakes_that_never_end_keep_no_honest_node_out() {
    let control_plane = ControlPlane::listening().await;
    let mut silent = Vec::new();
    for _ in 0..RUNNING_MAX + 64 {
        silent.push(TcpStream::connect(control_plane.address).await.unwrap());
    }
    let began = Instant::now();
    control_plane.connected(1, honest).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let first = &mut silent[0];
    let ended = in_time("a silent handshake does not end", first.read(&mut [0])).await;
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0));
}

#[tokio::test]
async fn a_host_with_hundreds_of_silent_connections_a_second_keeps_no_node_out() {
    let control_plane = Arc::new(ControlPlane::listening().await);
    let of = control_plane.clone();
    let attack = tokio::spawn(async move {
        let mut silent = VecDeque::new();
        loop {
            // First enough to fill ten seconds of queue with one second per handshake, then more per second than are cut off.
            let at_once = if silent.is_empty() { 2_500 } else { 20 };
            for _ in 0..at_once {
                silent.push_back(TcpStream::connect(of.address).await.unwrap());
            }
            while silent.len() > 4_000 {
                silent.pop_front();
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Nodes at other addresses than the attacker's are not affected. Twenty nodes, because a single one might be lucky.
    for number in 1..=20 {
        let began = Instant::now();
        let dialled = control_plane.dial_from([127, 0, 0, 2].into(), fetching(&control_plane, number)).await;
        assert!(dialled.is_ok(), "{:?}", dialled.err());
        assert!(began.elapsed() < Duration::from_secs(4), "an agent gives up after five: {:?}", began.elapsed());
    }
    assert!(!attack.is_finished());
    attack.abort();
}

#[tokio::test]
async fn a_node_gets_its_share_of_connections_and_others_still_get_theirs() {
    let control_plane = ControlPlane::listening().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_PER_NODE_MAX {
        let mut sender = control_plane.fetch(fetching(&control_plane, 1)).await.unwrap();
        assert_eq!(send_request(&mut sender, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
        held.push(sender);
    }
    let refused = async {
        let mut one_more = control_plane.fetch(fetching(&control_plane, 1)).await?;
        let (status, why) = send_request(&mut one_more, Method::GET, SECRET, empty()).await;
        if status == StatusCode::IM_A_TEAPOT { Err(why) } else { Ok(status) }
    };
    assert!(refused.await.is_err(), "the node is at its connection limit");
    control_plane.connected(2, honest).await;
    held.truncate(CONNECTIONS_PER_NODE_MAX / 2);
    eventually("places stay taken", async || control_plane.channel.shared.connections.of(node(1)).len() == held.len())
        .await;
    let mut again = control_plane.fetch(fetching(&control_plane, 1)).await.unwrap();
    assert_eq!(send_request(&mut again, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
}

#[tokio::test]
async fn node_that_connects_too_often_is_refused_and_others_are_not() {
    let control_plane = ControlPlane::listening().await;
    let (rate_limits, now) = (&control_plane.channel.shared.rate_limits, Instant::now());
    let identity = presented(&control_plane.authority, 1, seconds_ago(0)).identity;
    while rate_limits.channels.try_take(&identity, now) {}
    let channel = control_plane.serving(1, ConnectionKind::Control, honest).await;
    in_time("a channel that is opened too often is served", channel).await.unwrap();
    assert!(control_plane.rows.connected.lock().unwrap().is_empty());
    let fetches = async |number| {
        let mut sender = control_plane.fetch(fetching(&control_plane, number)).await.ok()?;
        Some(send_request(&mut sender, Method::GET, SECRET, empty()).await.0).filter(|status| *status == StatusCode::OK)
    };
    assert!(fetches(1).await.is_some(), "the node may still fetch");
    while rate_limits.connects.try_take(&identity, now + Duration::from_secs(60)) {}
    assert!(fetches(1).await.is_none());
    assert!(fetches(2).await.is_some());
    control_plane.connected(2, honest).await;
}

#[tokio::test]
async fn newer_of_two_agents_with_one_identity_is_refused_and_reported() {
    let control_plane = ControlPlane::listening().await;
    let older = control_plane.connected(1, honest).await;
    let clone = |path: String, _| {
        (path == path::HELLO).then(|| {
            let answer = json(&hello(ConnectionKind::Control, "clone"));
            Box::pin(async { answer }) as futures::future::BoxFuture<'static, _>
        })
    };
    let newer = control_plane.serving(1, ConnectionKind::Control, clone).await;
    in_time("the clone is served", newer).await.unwrap();
    let clones: Vec<String> =
        control_plane.rows.clones.lock().unwrap().iter().map(|hello| hello.instance.clone()).collect();
    assert_eq!(clones, ["clone"]);
    assert!(!older.is_finished());
    assert_eq!(control_plane.channel.shared.session(node(1)).unwrap().hello.instance, "one");
}

#[tokio::test]
async fn newer_agent_replaces_an_unresponsive_one_at_once() {
    let control_plane = ControlPlane::listening().await;
    // Answers only the hello of its connection, like a machine that is then switched off.
    let hellos = std::sync::atomic::AtomicUsize::new(0);
    let unresponsive = move |path: String, _| {
        let again = path == path::HELLO && hellos.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0;
        again.then(|| Box::pin(std::future::pending()) as futures::future::BoxFuture<'static, _>)
    };
    let older = control_plane.connected(1, unresponsive).await;
    let newcomer = |path: String, _| {
        (path == path::HELLO).then(|| {
            let answer = json(&hello(ConnectionKind::Control, "two"));
            Box::pin(async { answer }) as futures::future::BoxFuture<'static, _>
        })
    };
    let began = Instant::now();
    let _newer = control_plane.connected(1, newcomer).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    in_time("the older stays", older).await.unwrap();
    assert_eq!(control_plane.channel.shared.session(node(1)).unwrap().hello.instance, "two");
    assert!(control_plane.rows.clones.lock().unwrap().is_empty());
}

#[tokio::test]
async fn oversized_hello_is_refused() {
    let control_plane = ControlPlane::listening().await;
    let control = || hello(ConnectionKind::Control, "one");
    let absurd = [
        Hello { addresses: vec!["10.0.0.7".into(); 10_000], ..control() },
        Hello { protocols: vec![1; 20_000], ..control() },
        Hello { machine_id: "a".repeat(500_000), ..control() },
        Hello { agent_version: "a".repeat(2_000_000), ..control() },
    ];
    for absurd in absurd {
        let behavior = move |path: String, _| {
            let answer = (path == path::HELLO).then(|| json(&absurd))?;
            Some(Box::pin(async { answer }) as futures::future::BoxFuture<'static, _>)
        };
        let serving = control_plane.serving(1, ConnectionKind::Control, behavior).await;
        in_time("it is served", serving).await.unwrap();
    }
    assert!(control_plane.rows.connected.lock().unwrap().is_empty());
    control_plane.connected(1, honest).await;
}
