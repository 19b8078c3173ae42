//! Access to the replicas' listener, over real TLS.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use gpuaas_model::{Clock, NodeId, ReplicaId, Timestamp};
use gpuaas_test_support::MachineClock;
use gpuaas_trust::{
    ALPN_REPLICA, Authority, NodeIdentity, NodeKey, ReloadableCertificate, ReplicaIdentity, TrustedAuthorities,
    node_client_config, replica_server_config,
};
use gpuaas_wire::session::Hello;
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Channel, ChannelError, ChannelOptions, Holder, Holders, PeerOptions, PeerService, ProxyProtocol,
    channel::Shared,
    link::{Link, StreamWindow},
    peers::Peers,
};

/// Finds no replica.
struct Nowhere;

#[async_trait]
impl Holders for Nowhere {
    async fn holder(&self, _: NodeId) -> Option<Holder> {
        None
    }
}

fn now() -> Timestamp {
    MachineClock.now()
}

fn identity(of: u128) -> ReplicaIdentity {
    ReplicaIdentity { control_plane: "cp-1".into(), replica: ReplicaId::from_uuid(Uuid::from_u128(of)) }
}

const NODE: NodeId = NodeId::from_uuid(Uuid::from_u128(77));

/// Creates replica 1, which holds no node's channel; returns it with its listener's address.
async fn replica(authority: &Authority) -> (PeerService, SocketAddr) {
    let (chain, key) = authority.issue_replica(&identity(1), now()).unwrap();
    let trusted = TrustedAuthorities::new(authority.certificates()).unwrap();
    let tls = Arc::new(replica_server_config(ReloadableCertificate::new(chain, key).unwrap(), &trusted).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Arc::new(MachineClock);
    let options = ChannelOptions {
        unreachable_after: Duration::from_secs(1),
        peers: None,
        proxies: ProxyProtocol::default(),
        clock,
    };
    let channel = Channel { shared: Shared::new(&options).0 };
    (PeerService::new(channel, "cp-1".into(), listener, tls), address)
}

async fn listening(authority: &Authority) -> SocketAddr {
    let (service, address) = replica(authority).await;
    tokio::spawn(service.run(CancellationToken::new()));
    address
}

fn shown_by(trusted: &Authority, identity: &ReplicaIdentity, issuer: &Authority) -> ClientConfig {
    let (chain, key) = issuer.issue_replica(identity, now()).unwrap();
    node_client_config(trusted.certificates(), chain, key, ALPN_REPLICA).unwrap()
}

/// Requests a node that no replica holds from replica `number` at `address`; returns the error.
async fn request_error(tls: ClientConfig, address: SocketAddr, number: u128) -> ChannelError {
    let peers = Peers::new(PeerOptions { holders: Arc::new(Nowhere), control_plane: "cp-1".into(), tls });
    let holder = Holder { replica: identity(number).replica, address: address.to_string(), instance: "one".to_owned() };
    let answer = async { peers.control(&holder, NODE).await?.get::<Hello>("/v1/hello").await };
    answer.await.expect_err("no replica holds the node")
}

#[tokio::test]
async fn only_replicas_of_this_control_plane_are_answered() {
    let authority = Authority::generate("cp-1", now()).unwrap();
    let address = listening(&authority).await;
    let sister = shown_by(&authority, &identity(2), &authority);
    assert_eq!(
        request_error(sister.clone(), address, 1).await,
        ChannelError::NotConnected,
        "the replica holds no such node"
    );

    let other_authority = Authority::generate("cp-1", now()).unwrap();
    let of_other_authority = shown_by(&authority, &identity(2), &other_authority);
    let other = ReplicaIdentity { control_plane: "cp-2".into(), ..identity(2) };
    let other = shown_by(&authority, &other, &authority);
    let key = NodeKey::generate().unwrap();
    let node = NodeIdentity { control_plane: "cp-1".into(), node: NODE, epoch: 1 };
    let pem = authority.issue_node(&key.request_pem().unwrap(), &node, now()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
    let node = node_client_config(authority.certificates(), chain, key.to_der(), ALPN_REPLICA).unwrap();
    for (who, tls) in
        [("another authority's", of_other_authority), ("another control plane's", other), ("a node", node)]
    {
        let refused = request_error(tls, address, 1).await;
        assert!(matches!(refused, ChannelError::Lost(_) | ChannelError::Peer(_)), "{who}: {refused:?}");
    }
    // Another process has taken over the address and has no certificate for the expected replica.
    let moved = request_error(sister, address, 3).await;
    assert!(matches!(moved, ChannelError::Peer(_)), "{moved:?}");
}

#[tokio::test]
async fn connections_are_limited_and_unauthenticated_ones_not_counted() {
    let authority = Authority::generate("cp-1", now()).unwrap();
    let (mut service, address) = replica(&authority).await;
    service.connections = Semaphore::new(1);
    tokio::spawn(service.run(CancellationToken::new()));
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let tls = shown_by(&authority, &identity(2), &authority);
    let peers = Peers::new(PeerOptions { holders: Arc::new(Nowhere), control_plane: "cp-1".into(), tls: tls.clone() });
    let holder = Holder { replica: identity(1).replica, address: address.to_string(), instance: "one".to_owned() };
    let first = peers.control(&holder, NODE).await.unwrap();
    assert_eq!(first.get::<Hello>("/v1/hello").await, Err(ChannelError::NotConnected));
    let second = request_error(tls.clone(), address, 1).await;
    assert!(matches!(second, ChannelError::Lost(_) | ChannelError::Peer(_)), "{second:?}");
    first.ended.cancel();
    let began = tokio::time::Instant::now();
    while request_error(tls.clone(), address, 1).await != ChannelError::NotConnected {
        assert!(began.elapsed() < Duration::from_secs(20), "the connection is still counted");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_replica_connection_is_closed() {
    let authority = Authority::generate("cp-1", now()).unwrap();
    let service = Arc::new(replica(&authority).await.0);
    let (near, far) = tokio::io::duplex(16 * 1_024);
    let began = tokio::time::Instant::now();
    let serving = tokio::spawn(async move { service.serve_connection(far).await });
    let link = Link::open(near, StreamWindow::Small, CancellationToken::new()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let path = format!("/nodes/{NODE}/control/v1/hello");
    assert_eq!(link.get::<Hello>(&path).await, Err(ChannelError::NotConnected));
    // Both ends close; which one is first does not matter.
    let _ = serving.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 500, "the connection must end when idle, not earlier");
    link.ended.cancelled().await;
}
