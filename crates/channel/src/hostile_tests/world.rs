//! A listening channel, what it told the rows behind it, and nodes that answer whatever a test makes them answer.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use gpuaas_model::{Code, NodeId, SecretId, Timestamp};
use gpuaas_trust::{
    ALPN_FETCH, ALPN_NODE, Authority, NodeIdentity, NodeKey, Standing, channel_server_config, node_client_config,
    standing,
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
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::{
    Admission, ArtifactBody, Channel, ChannelBackend, ChannelOptions, FetchError, Holder, Presented, Refused,
    link::{Body, empty, full},
};

/// Longest wait for something that takes a fraction of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The rows behind the channel: which nodes are revoked, and what was recorded.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) revoked: Mutex<HashSet<NodeId>>,
    pub(super) connected: Mutex<Vec<Hello>>,
    pub(super) clones: Mutex<Vec<Hello>>,
    pub(super) reports: Mutex<Vec<(Instant, Vec<UnitReport>)>>,
    pub(super) renewed: Mutex<usize>,
}

#[async_trait]
impl ChannelBackend for Rows {
    async fn admit(&self, presented: &Presented) -> Result<Admission, Refused> {
        let refuse = |message: &str| Err(Refused { code: Code::Forbidden, message: message.to_owned() });
        if self.revoked.lock().unwrap().contains(&presented.identity.node) {
            return refuse("revoked");
        }
        match standing(&presented.certificate, now()).unwrap() {
            Standing::Current => Ok(Admission::Full),
            Standing::RenewalOnly => Ok(Admission::RenewalOnly),
            Standing::Void => refuse("void"),
        }
    }

    async fn connected(&self, _: NodeId, _: Uuid, hello: &Hello) -> Result<(), Refused> {
        self.connected.lock().unwrap().push(hello.clone());
        Ok(())
    }

    async fn disconnected(&self, _: NodeId, _: Uuid) -> bool {
        true
    }

    async fn did_not_return(&self, _: NodeId) {}

    async fn holder(&self, _: NodeId) -> Option<Holder> {
        None
    }

    async fn endpoints(&self) -> Vec<String> {
        Vec::new()
    }

    async fn cloned(&self, _: NodeId, newer: &Hello) {
        self.clones.lock().unwrap().push(newer.clone());
    }

    async fn units_changed(&self, _: NodeId, reports: Vec<UnitReport>) {
        self.reports.lock().unwrap().push((Instant::now(), reports));
    }

    async fn key_set(&self) -> (u64, String) {
        (1, "{}".to_owned())
    }

    async fn observed_units(&self, _: NodeId) -> Vec<String> {
        Vec::new()
    }

    async fn artifact(&self, _: NodeId, _: &str, _: u64) -> Result<ArtifactBody, FetchError> {
        Ok(ArtifactBody { size_bytes: u64::MAX, bytes: Box::new(tokio::io::repeat(7)) })
    }

    async fn read_secret(&self, _: NodeId, _: SecretId) -> Result<Zeroizing<Vec<u8>>, FetchError> {
        Ok(Zeroizing::new(b"hunter2".to_vec()))
    }

    async fn deposit_secret(&self, _: NodeId, _: SecretId, _: Zeroizing<Vec<u8>>) -> Result<(), FetchError> {
        Ok(())
    }

    async fn renew(&self, _: &Presented, _: &gpuaas_wire::session::RenewRequest) -> Result<String, Refused> {
        *self.renewed.lock().unwrap() += 1;
        Ok("a certificate".to_owned())
    }
}

pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// So many seconds before now.
pub(super) fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_millis(now().as_millis() - seconds * 1_000)
}

pub(super) fn node(number: u128) -> NodeId {
    NodeId::from_uuid(Uuid::from_u128(number))
}

/// A control plane's end of the channel.
pub(super) struct World {
    pub(super) authority: Authority,
    pub(super) rows: Arc<Rows>,
    pub(super) channel: Channel,
    pub(super) address: SocketAddr,
}

impl World {
    pub(super) async fn listening() -> Self {
        let authority = Authority::generate("cp-1", ago(100 * 24 * 3_600)).unwrap();
        let (chain, key) = authority.issue_server(&["127.0.0.1".to_owned()], now()).unwrap();
        let tls = Arc::new(channel_server_config(chain, key, authority.certificate()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = ChannelOptions { unreachable_after: Duration::from_secs(15), peers: None };
        let rows = Arc::new(Rows::default());
        let (channel, service) = Channel::new(listener, &options, tls, rows.clone());
        let address = service.local_address().unwrap();
        tokio::spawn(service.run(CancellationToken::new()));
        Self { authority, rows, channel, address }
    }

    /// What a node shows whose genuine certificate was made then.
    pub(super) fn shown(&self, number: u128, made: Timestamp, alpn: &[u8]) -> ClientConfig {
        self.shown_by(&self.authority, number, made, alpn)
    }

    /// The same, of a certificate that `issuer` made.
    pub(super) fn shown_by(&self, issuer: &Authority, number: u128, made: Timestamp, alpn: &[u8]) -> ClientConfig {
        let key = NodeKey::generate().unwrap();
        let identity = NodeIdentity { control_plane: "cp-1".into(), node: node(number), epoch: 1 };
        let pem = issuer.issue_node(&key.request_pem().unwrap(), &identity, made).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
        node_client_config(self.authority.certificate(), chain, key.to_der(), alpn).unwrap()
    }

    pub(super) async fn dial(&self, tls: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
    }

    /// A connection on which the node asks.
    pub(super) async fn fetch(&self, tls: ClientConfig) -> Result<SendRequest<Body>, String> {
        let stream = self.dial(tls).await.map_err(|error| error.to_string())?;
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// A control connection of a genuine node that answers by `lie`, and behaves where that answers nothing. Ends with the connection.
    pub(super) async fn connected(&self, number: u128, lie: impl Lie) -> tokio::task::JoinHandle<()> {
        let before = self.rows.connected.lock().unwrap().len();
        let serving = self.serving(number, ConnectionKind::Control, lie).await;
        eventually("the node is not taken", || self.rows.connected.lock().unwrap().len() > before).await;
        serving
    }

    /// Any connection of such a node.
    pub(super) async fn serving(
        &self,
        number: u128,
        kind: ConnectionKind,
        lie: impl Lie,
    ) -> tokio::task::JoinHandle<()> {
        let stream = self.dial(self.shown(number, now(), ALPN_NODE)).await.unwrap();
        let node = Arc::new(Node { kind, lie: Box::new(lie) });
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

    /// What a node does that is asked for a further connection: it opens one that answers by `lie`.
    pub(super) async fn open_asked(&self, number: u128, asked: Request<Incoming>, lie: impl Lie) {
        let body = asked.into_body().collect().await.unwrap().to_bytes();
        let BulkRequest { request } = serde_json::from_slice(&body).unwrap();
        self.serving(number, ConnectionKind::Bulk { request }, lie).await;
    }
}

/// What a node answers to a path; it behaves where there is no answer.
pub(super) trait Lie:
    Fn(String, Request<Incoming>) -> Option<BoxFuture<'static, Response<Body>>> + Send + Sync + 'static
{
}

impl<L> Lie for L where
    L: Fn(String, Request<Incoming>) -> Option<BoxFuture<'static, Response<Body>>> + Send + Sync + 'static
{
}

/// No lie at all.
pub(super) fn honest(_: String, _: Request<Incoming>) -> Option<BoxFuture<'static, Response<Body>>> {
    None
}

struct Node {
    kind: ConnectionKind,
    lie: Box<dyn Lie>,
}

impl Node {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if let Some(answer) = (self.lie)(path.clone(), request) {
            return answer.await;
        }
        match path.as_str() {
            path::HELLO => json(&hello(self.kind.clone(), "one")),
            _ => Response::new(empty()),
        }
    }
}

/// What an honest agent says of itself.
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
        unacknowledged: Vec::new(),
        clock: None,
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Response<Body> {
    Response::new(full(serde_json::to_vec(value).unwrap()))
}

/// The status and the code of the answer to a node's own request.
pub(super) async fn asked(
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

pub(super) fn fetching(world: &World, number: u128) -> ClientConfig {
    world.shown(number, now(), ALPN_FETCH)
}

pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What comes of something that must end by itself.
pub(super) async fn soon<T>(what: &str, ends: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, ends).await.unwrap_or_else(|_| panic!("{what}"))
}
