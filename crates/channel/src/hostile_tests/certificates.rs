//! Invalid, expired and revoked certificates.

use gpuaas_trust::{ALPN_FETCH, ALPN_NODE, Authority, NODE_CERTIFICATE_LIFE, RENEWAL_GRACE};
use gpuaas_wire::session::{RenewRequest, path};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::AsyncReadExt;

use super::control_plane::{ControlPlane, eventually, fetching, honest, in_time, node, seconds_ago, send_request};
use crate::link::{empty, full};

const SECRET: &str = "/v1/secrets/0198c0de-7a3b-7c11-9b54-0242ac120002";

fn seconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap()
}

#[tokio::test]
async fn unknown_future_and_long_expired_certificates_are_refused() {
    let control_plane = ControlPlane::listening().await;
    let other_authority = Authority::generate("cp-1", seconds_ago(100 * 24 * 3_600)).unwrap();
    let long_expired = seconds_ago(seconds(NODE_CERTIFICATE_LIFE) + seconds(RENEWAL_GRACE) + 3_600);
    for (case, tls) in [
        ("another authority's", control_plane.tls_config_by(&other_authority, 1, seconds_ago(0), ALPN_FETCH)),
        (
            "another authority's, expired",
            control_plane.tls_config_by(&other_authority, 1, seconds_ago(26 * 3_600), ALPN_FETCH),
        ),
        ("of the future", control_plane.tls_config(1, seconds_ago(-3_600), ALPN_FETCH)),
        ("of long ago", control_plane.tls_config(1, long_expired, ALPN_FETCH)),
    ] {
        let refused = async {
            let mut sender = control_plane.fetch(tls).await?;
            match send_request(&mut sender, Method::GET, SECRET, empty()).await {
                (StatusCode::IM_A_TEAPOT, _) => Err("closed".to_owned()),
                answered => Ok(answered),
            }
        };
        assert!(refused.await.is_err(), "{case}");
    }
    let mut good = control_plane.fetch(fetching(&control_plane, 1)).await.unwrap();
    assert_eq!(send_request(&mut good, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
}

#[tokio::test]
async fn expired_certificate_may_only_be_renewed() {
    let control_plane = ControlPlane::listening().await;
    for made in [seconds_ago(seconds(NODE_CERTIFICATE_LIFE) + 60), seconds_ago(seconds(RENEWAL_GRACE))] {
        let mut sender = control_plane.fetch(control_plane.tls_config(1, made, ALPN_FETCH)).await.unwrap();
        let expired = (StatusCode::FORBIDDEN, "certificate_expired".to_owned());
        for (method, path) in [
            (Method::GET, SECRET),
            (Method::PUT, SECRET),
            (Method::GET, "/v1/artifacts/00"),
            (Method::GET, path::RENEW),
            (Method::POST, "/v1/nonsense"),
        ] {
            assert_eq!(send_request(&mut sender, method, path, empty()).await, expired, "{path}");
        }
        let renewal = serde_json::to_vec(&RenewRequest { csr: "a request".to_owned(), clock: None }).unwrap();
        let (status, _) = send_request(&mut sender, Method::POST, path::RENEW, full(renewal)).await;
        assert_eq!(status, StatusCode::OK);
        let mut control = control_plane.dial(control_plane.tls_config(1, made, ALPN_NODE)).await.unwrap();
        let closed = in_time("no channel for an expired certificate", control.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_err() || closed.is_ok_and(|bytes| bytes == 0), "the connection must carry no request");
    }
    assert_eq!(*control_plane.rows.renewed.lock().unwrap(), 2);
    assert!(control_plane.rows.connected.lock().unwrap().is_empty());
}

#[tokio::test]
async fn all_connections_of_a_revoked_node_end_at_once() {
    let control_plane = ControlPlane::listening().await;
    let revoked = control_plane.connected(1, honest).await;
    let other = control_plane.connected(2, honest).await;
    let mut idle = control_plane.fetch(fetching(&control_plane, 1)).await.unwrap();
    let mut busy = control_plane.fetch(fetching(&control_plane, 1)).await.unwrap();
    assert_eq!(send_request(&mut idle, Method::GET, SECRET, empty()).await.0, StatusCode::OK);
    let request = http::Request::get("https://control-plane/v1/artifacts/00").body(empty()).unwrap();
    let mut artifact = busy.send_request(request).await.unwrap().into_body();
    assert!(artifact.frame().await.is_some_and(|frame| frame.is_ok()), "an endless artifact has begun");

    control_plane.rows.revoked.lock().unwrap().insert(node(1));
    // Even before the channel is notified, every request on an open connection is checked.
    let refused = send_request(&mut idle, Method::GET, SECRET, empty()).await;
    assert_eq!(refused, (StatusCode::FORBIDDEN, "forbidden".to_owned()));

    control_plane.channel.recheck(node(1));
    control_plane.channel.recheck(node(2));
    in_time("the channel stays open", revoked).await.unwrap();
    let broken = async { while artifact.frame().await.is_some_and(|frame| frame.is_ok()) {} };
    in_time("the artifact does not end", broken).await;
    in_time("the idle connection stays open", async {
        while idle.ready().await.is_ok() {
            tokio::task::yield_now().await
        }
    })
    .await;
    eventually("the session stays", async || control_plane.channel.shared.session(node(1)).is_err()).await;
    assert!(control_plane.channel.shared.session(node(2)).is_ok() && !other.is_finished());
    assert!(control_plane.channel.shared.connections.of(node(1)).is_empty());
}

#[tokio::test]
async fn node_revoked_while_connecting_is_refused() {
    let control_plane = ControlPlane::listening().await;
    let rows = control_plane.rows.clone();
    let (channel, hello_sent) = (control_plane.channel.clone(), std::sync::atomic::AtomicBool::new(false));
    // The node is already admitted when it gets the hello request; the channel is notified of its revocation before it has a session.
    let behavior = move |path: String, _: http::Request<hyper::body::Incoming>| {
        if path == path::HELLO && !hello_sent.swap(true, std::sync::atomic::Ordering::SeqCst) {
            rows.revoked.lock().unwrap().insert(node(1));
            channel.recheck(node(1));
        }
        None
    };
    let serving = control_plane.serving(1, gpuaas_wire::session::ConnectionKind::Control, behavior).await;
    in_time("the channel stays open", serving).await.unwrap();
    eventually("the session stays", async || control_plane.channel.shared.session(node(1)).is_err()).await;
}
