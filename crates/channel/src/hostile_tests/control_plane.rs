//! A listening channel, a backend that records its calls, and nodes whose answers a test can replace.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use gpuaas_model::{Clock, Code, EnrolledNode, NodeId, SecretId, Timestamp};
pub(super) use gpuaas_test_support::{MachineClock, eventually};
use gpuaas_trust::{
    ALPN_FETCH, ALPN_NODE, Authority, NodeIdentity, NodeKey, PermittedUse, ReloadableCertificate, TrustedAuthorities,
    channel_server_config, node_client_config, permitted_use,
};
use gpuaas_wire::{
    session::{BulkRequest, ConnectionKind, Hello, PROTOCOL, path},
    task::UnitReport,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, client::conn::http2::SendRequest, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::{
    Admission, ArtifactBody, Channel, ChannelBackend, ChannelOptions, ChannelService, FetchError, PresentedCertificate,
    ProxyProtocol, Refused,
    link::{Body, empty, full},
};

/// Timeout for conditions that normally hold much sooner.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);

/// The channel's backend in memory: the revoked nodes and the recorded calls.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) revoked: Mutex<HashSet<NodeId>>,
    pub(super) connected: Mutex<Vec<Hello>>,
    pub(super) clones: Mutex<Vec<Hello>>,
    pub(super) reports: Mutex<Vec<(Instant, Vec<UnitReport>)>>,
    pub(super) renewed: Mutex<usize>,
    /// Units whose drift was hinted.
    pub(super) hints: Mutex<Vec<String>>,
    /// The recorded connection of each node; `recording` makes recording fail.
    pub(super) sessions: Mutex<HashMap<NodeId, Uuid>>,
    pub(super) recording: Mutex<Recording>,
    pub(super) absent: Mutex<Vec<NodeId>>,
    /// Number of admission checks; running ones; most at the same time; and the duration of each.
    pub(super) lookups: AtomicUsize,
    pub(super) lookups_running: AtomicUsize,
    pub(super) lookups_running_max: AtomicUsize,
    pub(super) lookup_time: Mutex<Duration>,
    /// Number of artifact bytes that were read.
    pub(super) artifact_bytes: Arc<AtomicUsize>,
}

/// Outcome of recording a connection.
#[derive(Clone, Copy, Default)]
pub(super) enum Recording {
    #[default]
    Works,
    /// Nothing is recorded.
    Fails,
    /// The connection is recorded, and the step after it fails.
    FailsLate,
    Panics,
}

/// An endless byte stream that counts the bytes read.
struct Endless(Arc<AtomicUsize>);

impl AsyncRead for Endless {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        self.0.fetch_add(buf.remaining(), Ordering::SeqCst);
        buf.put_slice(&vec![7; buf.remaining()]);
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl ChannelBackend for Rows {
    async fn admit(&self, presented: &PresentedCertificate) -> Result<Admission, Refused> {
        let refuse = |message: &str| Err(Refused { code: Code::Forbidden, message: message.to_owned() });
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let looking = self.lookups_running.fetch_add(1, Ordering::SeqCst) + 1;
        self.lookups_running_max.fetch_max(looking, Ordering::SeqCst);
        let lookup_time = *self.lookup_time.lock().unwrap();
        tokio::time::sleep(lookup_time).await;
        self.lookups_running.fetch_sub(1, Ordering::SeqCst);
        if self.revoked.lock().unwrap().contains(&presented.identity.node) {
            return refuse("revoked");
        }
        match permitted_use(&presented.certificate, now()).unwrap() {
            PermittedUse::Current => Ok(Admission::Full),
            PermittedUse::RenewalOnly => Ok(Admission::RenewalOnly),
            PermittedUse::Void => refuse("void"),
        }
    }

    async fn connected(&self, node: EnrolledNode, connection: Uuid, hello: &Hello) -> Result<(), Refused> {
        let recording = *self.recording.lock().unwrap();
        let refused = Refused { code: Code::Unavailable, message: "the store is gone".to_owned() };
        match recording {
            Recording::Fails => return Err(refused),
            Recording::Panics => panic!("on purpose"),
            Recording::Works | Recording::FailsLate => {}
        }
        self.sessions.lock().unwrap().insert(node.node, connection);
        if let Recording::FailsLate = recording {
            return Err(refused);
        }
        self.connected.lock().unwrap().push(hello.clone());
        Ok(())
    }

    async fn disconnected(&self, node: NodeId, connection: Uuid) -> bool {
        let mut sessions = self.sessions.lock().unwrap();
        let was_it = sessions.get(&node) == Some(&connection);
        was_it && sessions.remove(&node).is_some()
    }

    async fn became_unreachable(&self, node: NodeId) {
        self.absent.lock().unwrap().push(node);
    }

    async fn endpoints(&self) -> Vec<String> {
        Vec::new()
    }

    async fn identity_cloned(&self, _: NodeId, newer: &Hello) {
        self.clones.lock().unwrap().push(newer.clone());
    }

    async fn units_changed(&self, _: EnrolledNode, reports: Vec<UnitReport>) -> bool {
        if let Recording::Fails = *self.recording.lock().unwrap() {
            return false;
        }
        self.reports.lock().unwrap().push((Instant::now(), reports));
        true
    }

    async fn drift_hinted(&self, _: EnrolledNode, unit: &str) -> bool {
        if let Recording::Fails = *self.recording.lock().unwrap() {
            return false;
        }
        self.hints.lock().unwrap().push(unit.to_owned());
        true
    }

    async fn key_set(&self) -> (u64, String) {
        (1, "{}".to_owned())
    }

    async fn observed_units(&self, _: NodeId) -> Vec<String> {
        Vec::new()
    }

    async fn artifact(&self, _: EnrolledNode, _: &str, _: u64) -> Result<ArtifactBody, FetchError> {
        Ok(ArtifactBody { size_bytes: u64::MAX, bytes: Box::new(Endless(self.artifact_bytes.clone())) })
    }

    async fn read_secret(&self, _: EnrolledNode, _: SecretId) -> Result<Zeroizing<Vec<u8>>, FetchError> {
        Ok(Zeroizing::new(b"hunter2".to_vec()))
    }

    async fn deposit_secret(&self, _: EnrolledNode, _: SecretId, _: Zeroizing<Vec<u8>>) -> Result<(), FetchError> {
        Ok(())
    }

    async fn renew(&self, _: &PresentedCertificate, _: &gpuaas_wire::session::RenewRequest) -> Result<String, Refused> {
        *self.renewed.lock().unwrap() += 1;
        Ok("a certificate".to_owned())
    }
}

pub(super) fn now() -> Timestamp {
    MachineClock.now()
}

/// Returns the time `seconds` before now.
pub(super) fn seconds_ago(seconds: i64) -> Timestamp {
    Timestamp::from_millis(now().as_millis() - seconds * 1_000)
}

pub(super) fn node(number: u128) -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(number))
}

/// Returns the node with the enrollment epoch of its certificates.
pub(super) fn enrolled(number: u128) -> EnrolledNode {
    EnrolledNode { node: node(number), epoch: 1 }
}

/// The control plane's end of the channel.
pub(super) struct ControlPlane {
    pub(super) authority: Authority,
    pub(super) rows: Arc<Rows>,
    pub(super) channel: Channel,
    pub(super) address: SocketAddr,
}

impl ControlPlane {
    pub(super) async fn listening() -> Self {
        Self::with_unreachable_after(Duration::from_secs(15)).await
    }

    /// Listens with this unreachable timeout.
    pub(super) async fn with_unreachable_after(unreachable_after: Duration) -> Self {
        let (control_plane, service) = Self::not_serving_yet(unreachable_after).await;
        tokio::spawn(service.run(control_plane.rows.clone(), CancellationToken::new()));
        control_plane
    }

    /// Like [`Self::with_unreachable_after`], before the service runs.
    pub(super) async fn not_serving_yet(unreachable_after: Duration) -> (Self, ChannelService) {
        let authority = Authority::generate("cp-1", seconds_ago(100 * 24 * 3_600)).unwrap();
        let (chain, key) = authority.issue_server(&["127.0.0.1".to_owned()], now()).unwrap();
        let trusted = TrustedAuthorities::new(authority.certificates()).unwrap();
        let tls = Arc::new(channel_server_config(ReloadableCertificate::new(chain, key).unwrap(), &trusted).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = ChannelOptions {
            unreachable_after,
            peers: None,
            proxies: ProxyProtocol::default(),
            clock: Arc::new(MachineClock),
        };
        let rows = Arc::new(Rows::default());
        let (channel, service) = Channel::new(listener, &options, tls);
        let address = service.local_address().unwrap();
        (Self { authority, rows, channel, address }, service)
    }

    /// Returns TLS settings with a genuine certificate of the node, issued at `made`.
    pub(super) fn tls_config(&self, number: u128, made: Timestamp, alpn: &[u8]) -> ClientConfig {
        self.tls_config_by(&self.authority, number, made, alpn)
    }

    /// Like [`Self::tls_config`], with a certificate that `issuer` has issued.
    pub(super) fn tls_config_by(&self, issuer: &Authority, number: u128, made: Timestamp, alpn: &[u8]) -> ClientConfig {
        let key = NodeKey::generate().unwrap();
        let identity = NodeIdentity { control_plane: "cp-1".into(), node: node(number), epoch: 1 };
        let pem = issuer.issue_node(&key.request_pem().unwrap(), &identity, made).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
        node_client_config(self.authority.certificates(), chain, key.to_der(), alpn).unwrap()
    }

    pub(super) async fn dial(&self, tls: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        self.dial_from(Ipv4Addr::LOCALHOST.into(), tls).await
    }

    /// Dials from the local address `from`.
    pub(super) async fn dial_from(&self, from: IpAddr, tls: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(from, 0))?;
        let stream = socket.connect(self.address).await?;
        TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
    }

    /// Opens a connection on which the node sends requests.
    pub(super) async fn fetch(&self, tls: ClientConfig) -> Result<SendRequest<Body>, String> {
        let stream = self.dial(tls).await.map_err(|error| error.to_string())?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Opens a control connection of a genuine node that answers with `lie`, and honestly where `lie` returns `None`. The returned task
    /// ends with the connection.
    pub(super) async fn connected(&self, number: u128, lie: impl Behavior) -> tokio::task::JoinHandle<()> {
        let before = self.rows.connected.lock().unwrap().len();
        let serving = self.serving(number, ConnectionKind::Control, lie).await;
        eventually("the node does not connect", async || self.rows.connected.lock().unwrap().len() > before).await;
        serving
    }

    /// Opens a connection of any kind of the same node as in [`Self::connected`].
    pub(super) async fn serving(
        &self,
        number: u128,
        kind: ConnectionKind,
        lie: impl Behavior,
    ) -> tokio::task::JoinHandle<()> {
        self.serving_by(number, now(), kind, lie).await
    }

    /// Like [`Self::serving`], with a certificate issued at `made`.
    pub(super) async fn serving_by(
        &self,
        number: u128,
        made: Timestamp,
        kind: ConnectionKind,
        lie: impl Behavior,
    ) -> tokio::task::JoinHandle<()> {
        let stream = self.dial(self.tls_config(number, made, ALPN_NODE)).await.unwrap();
        let node = Arc::new(Node { kind, behavior: Box::new(lie) });
        let service = service_fn(move |request| {
            let node = node.clone();
            async move { Ok::<_, std::convert::Infallible>(node.answer(request).await) }
        });
        tokio::spawn(async move {
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            let _ = serving.await;
        })
    }

    /// Opens the requested bulk connection as the node; the connection answers with `lie`.
    pub(super) async fn open_requested(&self, number: u128, asked: Request<Incoming>, lie: impl Behavior) {
        let body = asked.into_body().collect().await.unwrap().to_bytes();
        let BulkRequest { request } = serde_json::from_slice(&body).unwrap();
        self.serving(number, ConnectionKind::Bulk { request }, lie).await;
    }
}

/// Returns the certificate that a genuine node's connection presents.
pub(super) fn presented(authority: &Authority, number: u128, made: Timestamp) -> PresentedCertificate {
    let identity = NodeIdentity { control_plane: "cp-1".into(), node: node(number), epoch: 1 };
    let request = NodeKey::generate().unwrap().request_pem().unwrap();
    let pem = authority.issue_node(&request, &identity, made).unwrap();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    PresentedCertificate { identity, certificate }
}

/// A node's answer to a request; `None` for the honest answer.
pub(super) trait Behavior:
    Fn(String, Request<Incoming>) -> Option<BoxFuture<'static, Response<Body>>> + Send + Sync + 'static
{
}

impl<L> Behavior for L where
    L: Fn(String, Request<Incoming>) -> Option<BoxFuture<'static, Response<Body>>> + Send + Sync + 'static
{
}

/// Answers every request honestly.
pub(super) fn honest(_: String, _: Request<Incoming>) -> Option<BoxFuture<'static, Response<Body>>> {
    None
}

struct Node {
    kind: ConnectionKind,
    behavior: Box<dyn Behavior>,
}

impl Node {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if let Some(answer) = (self.behavior)(path.clone(), request) {
            return answer.await;
        }
        match path.as_str() {
            path::HELLO => json(&hello(self.kind.clone(), "one")),
            _ => Response::new(empty()),
        }
    }
}

/// Returns the hello of an honest agent.
pub(super) fn hello(connection: ConnectionKind, instance: &str) -> Hello {
    Hello {
        agent_version: "0.1.0".into(),
        protocols: vec![PROTOCOL],
        connection,
        instance: instance.into(),
        machine_id: "ab".repeat(16),
        boot_id: "cd".repeat(16),
        addresses: vec!["10.0.0.7".into()],
        support: Vec::new(),
        fence: 0,
        key_set_version: 1,
        clock: None,
        problem: None,
        ledger: None,
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Response<Body> {
    Response::new(full(serde_json::to_vec(value).unwrap()))
}

/// Sends a node's request; returns the status and error code of the response.
pub(super) async fn send_request(
    sender: &mut SendRequest<Body>,
    method: Method,
    path: &str,
    body: Body,
) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(format!("https://control-plane{path}")).body(body).unwrap();
    let response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) => return (StatusCode::IM_A_TEAPOT, error.to_string()),
    };
    let status = response.status();
    let bytes = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_else(|_| Bytes::new());
    let refusal: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    (status, refusal["code"].as_str().unwrap_or_default().to_owned())
}

pub(super) fn fetching(control_plane: &ControlPlane, number: u128) -> ClientConfig {
    control_plane.tls_config(number, now(), ALPN_FETCH)
}

/// Returns the output of a future that must end within [`WAIT_MAX`].
pub(super) async fn in_time<T>(what: &str, ends: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, ends).await.unwrap_or_else(|_| panic!("{what}"))
}
