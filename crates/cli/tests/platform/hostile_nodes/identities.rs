//! Identities that are revoked while the channel is open, that expire, or that are cloned.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpuaas_api_types::{CreateAllocation, CreateProject};
use gpuaas_client::Client;
use gpuaas_model::Timestamp;
use gpuaas_postgres_server::Server;
use gpuaas_trust::{ALPN_FETCH, ALPN_NODE, Authority, NodeIdentity, NodeKey, SealingKey};
use gpuaas_wire::session::{ConnectionKind, Hello, RenewRequest, RenewResponse, path};
use http::Method;

use super::{
    lie::{Lies, hello},
    node::{Node, send_request},
};
use crate::{
    fleet::Fleet,
    world::{WAIT_MAX, eventually},
};

const SECRET: &str = "/v1/secrets/0198c0de-7a3b-7c11-9b54-0242ac120002";

/// Creates a project and an allocation of the node; returns the allocation's id once it is active.
async fn allocated(client: &Client, node: &str) -> String {
    client.create_project(&CreateProject { name: "research".into() }).await.expect("made");
    let ask = CreateAllocation { project: "research".into(), node: node.into() };
    eventually("the node does not become active", async || {
        client.get_node(node).await.is_ok_and(|node| node.state == "active")
    })
    .await;
    let allocation = client.create_allocation(&ask).await.expect("made").id;
    eventually("the allocation does not become active", async || {
        let list = client.list_allocations(None, None).await.expect("listed").items;
        list.iter().all(|allocation| allocation.state == "active")
    })
    .await;
    allocation
}

/// Releases the node's allocation through `client` and checks that every connection of the node ends.
async fn assert_release_ends_connections(node: &std::sync::Arc<Node>, client: &Client) {
    let channel = node.serve(Lies::default()).await;
    let allocation = allocated(client, "gpu-1").await;
    let mut fetching = node.fetch().await;
    assert_eq!(send_request(&mut fetching, Method::GET, SECRET, "").await.map(|(status, _)| status), Some(404));
    client.release_allocation(&allocation).await.expect("released");
    let released = Instant::now();
    tokio::time::timeout(WAIT_MAX, channel).await.expect("the channel ends").expect("no panic");
    let ended = async { while send_request(&mut fetching, Method::GET, SECRET, "").await.is_some() {} };
    tokio::time::timeout(WAIT_MAX, ended).await.expect("the fetch connection ends");
    println!("every connection had ended {:?} after the release", released.elapsed());
    let again = node.serve(Lies::default()).await;
    tokio::time::timeout(WAIT_MAX, again).await.expect("the node is disconnected again").expect("no panic");
    assert_eq!(client.get_node("gpu-1").await.expect("a node").state, "needs_reimage");
    eventually("it still counts as connected", async || {
        client.get_node("gpu-1").await.is_ok_and(|node| node.connectivity != "connected")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn released_node_loses_every_connection_at_once() {
    let fleet = Fleet::start(0).await;
    let client = fleet.client();
    let node = Node::enrolled(&client, "gpu-1").await;
    assert_release_ends_connections(&node, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_at_another_replica_ends_every_connection() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let fleet = Fleet::start_on(0, 2, Some(server.fresh_database().await)).await;
    let node = Node::enrolled(&fleet.client_of(0), "gpu-1").await;
    assert_release_ends_connections(&node, &fleet.client_of(1)).await;
}

/// Returns the time `hours` hours ago.
pub(crate) fn hours_ago(hours: u64) -> Timestamp {
    let then = SystemTime::now() - Duration::from_secs(hours * 3_600);
    let since = then.duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).expect("a time"))
}

/// Returns the control plane's id, and its authority, whose key is opened with the sealing key.
pub(crate) async fn authority(fleet: &Fleet) -> (String, Authority) {
    let store = rusqlite::Connection::open(fleet.data_dir().join("gpuaas.db")).expect("the store");
    let id = store.query_row("select value from settings where name = 'control-plane.id'", [], |row| row.get(0));
    let id: Vec<u8> = id.expect("a setting");
    let authority = "select id, doc, sealed_key from authorities where state = 'active'";
    let authority = store.query_row(authority, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let (authority, doc, sealed): (String, String, Vec<u8>) = authority.expect("an authority");
    let sealing = SealingKey::new(&std::fs::read(fleet.data_dir().join("sealing.key")).expect("a key")).expect("a key");
    let key = sealing.open(format!("authority.key/{authority}").as_bytes(), &sealed).expect("sealed by it");
    let doc: serde_json::Value = serde_json::from_str(&doc).expect("JSON");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a text");
    let certificate = doc["certificate"].as_str().expect("a certificate");
    (text(&id), Authority::from_pem(certificate, &text(&key)).expect("an authority"))
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_permits_only_renewal_with_a_new_key() {
    let fleet = Fleet::start(0).await;
    let node = Node::enrolled(&fleet.client(), "gpu-1").await;
    let (control_plane, authority) = authority(&fleet).await;
    let issued = |epoch: u64, hours: u64| {
        let identity = NodeIdentity { control_plane: control_plane.clone(), node: node.id, epoch };
        authority.issue_node(&node.key.request_pem().expect("a request"), &identity, hours_ago(hours)).expect("issued")
    };
    let renewal = |csr: String| serde_json::to_vec(&RenewRequest { csr, clock: None }).expect("JSON");
    let own = renewal(node.key.request_pem().expect("a request"));
    for hours in [25, 24 * 30] {
        let expired = issued(1, hours);
        let mut sender = node.fetch_with(&expired).await.expect("accepted for its renewal");
        for (method, target) in [(Method::GET, SECRET), (Method::PUT, SECRET), (Method::GET, "/v1/artifacts/00")] {
            let (status, refusal) = send_request(&mut sender, method, target, "").await.expect("an answer");
            assert_eq!((status, &refusal["code"]), (403, &"certificate_expired".into()), "{target}");
        }
        let fresh = NodeKey::generate().expect("a key");
        let asks = renewal(fresh.request_pem().expect("a request"));
        let (status, renewed) =
            send_request(&mut sender, Method::POST, path::RENEW, asks.clone()).await.expect("an answer");
        assert_eq!(status, 200, "{renewed}");
        // Renewals are rate limited, so that each refusal is tried only once.
        if hours == 25 {
            for (what, reused) in [("of the certificate", own.clone()), ("of the renewal", asks)] {
                let (status, refusal) =
                    send_request(&mut sender, Method::POST, path::RENEW, reused).await.expect("an answer");
                assert_eq!((status, &refusal["code"]), (403, &"key_reused".into()), "the key {what}");
            }
        }
        let renewed: RenewResponse = serde_json::from_value(renewed).expect("a renewal");
        let shown = node.tls_config_with_key(&fresh, &renewed.certificate, ALPN_FETCH);
        let mut good = node.fetch_by(shown).await.expect("connected");
        assert_eq!(send_request(&mut good, Method::GET, SECRET, "").await.map(|(status, _)| status), Some(404));
    }
    let another = NodeIdentity { control_plane: "another".to_owned(), node: node.id, epoch: 1 };
    let another =
        authority.issue_node(&node.key.request_pem().expect("a request"), &another, hours_ago(0)).expect("issued");
    for (what, certificate) in [
        ("too long expired", issued(1, 24 * 32)),
        ("of an earlier enrollment", issued(0, 1)),
        ("of another control plane", another),
    ] {
        let refused = async {
            let mut sender = node.fetch_with(&certificate).await.ok()?;
            send_request(&mut sender, Method::POST, path::RENEW, own.clone()).await
        };
        assert_eq!(refused.await, None, "{what}");
    }
    let mut control = node.dial(node.tls_config(&issued(1, 25), ALPN_NODE)).await.expect("a handshake");
    let mut received = Vec::new();
    let closed = tokio::io::AsyncReadExt::read_to_end(&mut control, &mut received);
    let closed = tokio::time::timeout(WAIT_MAX, closed).await.expect("the connection closes");
    assert!(closed.is_err() || closed.is_ok_and(|bytes| bytes == 0));
}

/// Path of an agent's identity file.
const IDENTITY: &str = "var/lib/gpuaas-agent/identity.json";

/// Returns the certificate in the identity file of a node's agent.
pub(crate) fn kept_certificate(fleet: &Fleet, node: u8) -> Option<String> {
    let kept = std::fs::read(fleet.node_file(node, IDENTITY)).ok()?;
    let kept: serde_json::Value = serde_json::from_slice(&kept).ok()?;
    kept["certificate"].as_str().map(str::to_owned)
}

/// Replaces the certificate of a node's agent by one issued `hours` hours ago and returns it. The agent presents it from its next start on.
pub(crate) async fn age_certificate(fleet: &Fleet, node: u8, hours: u64) -> String {
    let file = fleet.node_file(node, IDENTITY);
    let mut identity: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("enrolled")).expect("JSON");
    let key = NodeKey::from_pem(identity["key"].as_str().expect("a key")).expect("a key");
    let (control_plane, authority) = authority(fleet).await;
    let id = identity["node"].as_str().expect("an id").parse().expect("an id");
    let of = NodeIdentity { control_plane, node: id, epoch: identity["epoch"].as_u64().expect("a number") };
    let aged = authority.issue_node(&key.request_pem().expect("a request"), &of, hours_ago(hours)).expect("issued");
    identity["certificate"] = aged.clone().into();
    // The file as an earlier version of the agent wrote it: without `digest` and `ledger`.
    identity.as_object_mut().expect("an object").retain(|name, _| name != "digest" && name != "ledger");
    std::fs::write(&file, identity.to_string()).expect("written");
    aged
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_with_an_expired_certificate_renews_it() {
    let fleet = Fleet::start(1).await;
    let expired = age_certificate(&fleet, 1, 24 * 10).await;
    fleet.kill_agent(1);
    eventually("the agent does not renew", async || kept_certificate(&fleet, 1).is_some_and(|kept| kept != expired))
        .await;
    fleet.client().ping_node("gpu-1").await.expect("it serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn cloned_identity_is_refused_and_reported() {
    clone_is_refused(Fleet::start(0).await, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cloned_identity_is_refused_at_another_replica() {
    let server = tokio::task::block_in_place(|| Server::start(&[], &[]));
    let url = server.fresh_database().await;
    clone_is_refused(Fleet::start_on(0, 2, Some(url)).await, 1).await;
}

/// Checks that a clone that dials `replica` is refused while the first holder is connected to replica 0.
async fn clone_is_refused(fleet: Fleet, replica: usize) {
    let client = fleet.client();
    let node = Node::enrolled(&client, "gpu-1").await;
    let first = node.serve(Lies::default()).await;
    eventually("the node does not become active", async || {
        client.get_node("gpu-1").await.is_ok_and(|node| node.state == "active")
    })
    .await;
    let clone = Hello { instance: "clone".into(), ..hello(ConnectionKind::Control) };
    let second = node.serve(Lies { hello: Some(clone.clone()), replica, ..Lies::default() }).await;
    tokio::time::timeout(WAIT_MAX, second).await.expect("the clone is refused").expect("no panic");
    let clones = async || {
        let events = client.list_events(None, 0).await.expect("events").items;
        events.iter().filter(|event| event.kind == "node.identity_cloned").count()
    };
    assert_eq!(clones().await, 1);
    assert!(!first.is_finished());
    // Once the first has disconnected, any holder of the identity may take its place.
    first.abort();
    let third = node.serve(Lies { hello: Some(clone), replica, ..Lies::default() }).await;
    client.ping_node("gpu-1").await.expect("the newer holder answers");
    assert!(!third.is_finished());
    assert_eq!(clones().await, 1);
}
