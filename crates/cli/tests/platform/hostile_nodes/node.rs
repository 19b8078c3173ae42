//! A node with a genuine certificate and no real agent: it answers as a test directs.

use std::sync::Arc;

use futures::future::BoxFuture;
use gpuaas_api_types::RegisterNode;
use gpuaas_client::Client;
use gpuaas_model::NodeId;
use gpuaas_trust::{
    ALPN_FETCH, ALPN_NODE, EnrollmentString, Envelope, NodeKey, SignedKeySet, SigningKeySet, node_client_config,
    pinned_client_config,
};
use gpuaas_wire::session::{BulkRequest, ConnectionKind, EnrollRequest, EnrollResponse, path};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2::SendRequest, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::ClientConfig};

use super::lie::{Body, Lies, body, hello, honest_result, succeeded};

/// A node's identity, and the channel addresses at which it connects.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: NodeKey,
    /// Channel addresses of all replicas.
    channels: Vec<String>,
    authority: CertificateDer<'static>,
    /// The node's certificate, PEM.
    pub(crate) certificate: String,
    keys: SigningKeySet,
}

async fn dial(address: &str, tls: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("127.0.0.1").expect("a name"), stream).await
}

impl Node {
    /// Registers a node of that name and enrolls it as an agent would.
    pub(crate) async fn enrolled(client: &Client, name: &str) -> Arc<Self> {
        let ask = RegisterNode { name: name.to_owned(), ..RegisterNode::default() };
        let registered = client.register_node(&ask).await.expect("registered");
        Self::enroll(&registered.enrollment.string).await.expect("enrolled")
    }

    /// Enrolls with an enrollment string; a refusal is returned as its error code.
    pub(crate) async fn enroll(string: &str) -> Result<Arc<Self>, String> {
        let string = EnrollmentString::decode(string).expect("an enrollment string");
        let key = NodeKey::generate().expect("a key");
        let ask = EnrollRequest {
            node: string.node,
            token: string.token.expose().to_owned(),
            csr: key.request_pem().expect("a request"),
            machine_id: "ab".repeat(16),
            agent_version: "0.1.0".to_owned(),
            clock: None,
            reimage: None,
        };
        let response = redeem(&string, &ask).await?;
        let authority = CertificateDer::from_pem_slice(response.authority.as_bytes()).expect("a certificate");
        let signed: SignedKeySet = serde_json::from_value(response.key_set).expect("a key set");
        Ok(Arc::new(Self {
            id: string.node,
            key,
            channels: response.channels.clone(),
            keys: signed.open(std::slice::from_ref(&authority)).expect("signed by the authority"),
            authority,
            certificate: response.certificate,
        }))
    }

    /// Returns whether the node channel accepts a certificate: it then answers 404 to a request for an artifact that does not exist.
    pub(crate) async fn is_accepted(&self, certificate: &str) -> bool {
        let Ok(mut sender) = self.fetch_with(certificate).await else { return false };
        send_request(&mut sender, Method::GET, "/v1/artifacts/00", "").await.is_some_and(|(status, _)| status == 404)
    }

    /// Returns the TLS configuration that presents a certificate with the node's own key.
    pub(crate) fn tls_config(&self, certificate: &str, alpn: &[u8]) -> ClientConfig {
        self.tls_config_with_key(&self.key, certificate, alpn)
    }

    /// Like [`Self::shown`], with another key.
    pub(crate) fn tls_config_with_key(&self, key: &NodeKey, certificate: &str, alpn: &[u8]) -> ClientConfig {
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")];
        node_client_config(std::slice::from_ref(&self.authority), chain, key.to_der(), alpn).expect("a configuration")
    }

    /// Connects to the channel of the first replica.
    pub(crate) async fn dial(&self, tls: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        dial(&self.channels[0], tls).await
    }

    /// Opens a connection for requests, with the node's own certificate.
    pub(crate) async fn fetch(&self) -> SendRequest<Full<hyper::body::Bytes>> {
        self.fetch_with(&self.certificate).await.expect("connected")
    }

    /// Like [`Self::fetch`], with another certificate for the node's key.
    pub(crate) async fn fetch_with(&self, certificate: &str) -> Result<SendRequest<Full<hyper::body::Bytes>>, String> {
        self.fetch_by(self.tls_config(certificate, ALPN_FETCH)).await
    }

    /// Like [`Self::fetch`], with this TLS configuration.
    pub(crate) async fn fetch_by(&self, shown: ClientConfig) -> Result<SendRequest<Full<hyper::body::Bytes>>, String> {
        let stream = self.dial(shown).await.map_err(|error| error.to_string())?;
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Serves a control connection, and opens bulk connections when asked. The task ends with the control connection.
    pub(crate) async fn serve(self: &Arc<Self>, lies: Lies) -> JoinHandle<()> {
        self.clone().serving(ConnectionKind::Control, Arc::new(lies)).await.expect("connected")
    }

    /// Boxed because serving a connection may open others recursively.
    fn serving(
        self: Arc<Self>,
        kind: ConnectionKind,
        lies: Arc<Lies>,
    ) -> BoxFuture<'static, std::io::Result<JoinHandle<()>>> {
        Box::pin(async move {
            let stream = dial(&self.channels[lies.replica], self.tls_config(&self.certificate, ALPN_NODE)).await?;
            let service = service_fn(move |request| {
                let (node, kind, lies) = (self.clone(), kind.clone(), lies.clone());
                async move { Ok::<_, std::convert::Infallible>(node.answer(kind, lies, request).await) }
            });
            Ok(tokio::spawn(async move {
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = serving.serve_connection(TokioIo::new(stream), service).await;
            }))
        })
    }

    async fn answer(
        self: Arc<Self>,
        kind: ConnectionKind,
        lies: Arc<Lies>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let requested_path = request.uri().path().to_owned();
        if let Some(lie) = lies.of_path.get(requested_path.as_str()) {
            return lie().await;
        }
        if requested_path == path::HELLO {
            let message = lies.hello.clone().unwrap_or_else(|| hello(kind));
            return Response::new(body(serde_json::to_vec(&message).expect("JSON")));
        }
        let sent = request.into_body().collect().await.map(|sent| sent.to_bytes()).unwrap_or_default();
        match requested_path.as_str() {
            path::TASKS => {
                let statement = Envelope::open(&sent, &self.keys).expect("a task for this node");
                let task = statement.task_type.parse().expect("a type of the catalog");
                match lies.of_task.get(&task) {
                    Some(lie) => lie(statement),
                    None => succeeded(honest_result(task)),
                }
            }
            path::CONNECTIONS => {
                let BulkRequest { request } = serde_json::from_slice(&sent).expect("a request");
                let _ = self.serving(ConnectionKind::Bulk { request }, lies).await;
                Response::new(body(""))
            }
            _ => Response::new(body("")),
        }
    }
}

async fn redeem(string: &EnrollmentString, ask: &EnrollRequest) -> Result<EnrollResponse, String> {
    let address = string.url.strip_prefix("https://").expect("a URL");
    let mut tls = pinned_client_config(&string.ca_sha256).expect("a configuration");
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = dial(address, tls).await.expect("connected");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{}/api/v1/enroll", string.url))
        .header("content-type", "application/json")
        .body(Full::new(hyper::body::Bytes::from(serde_json::to_vec(ask).expect("JSON"))))
        .expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let is_enrolled = response.status().is_success();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    if is_enrolled {
        return Ok(serde_json::from_slice(&bytes).expect("an enrollment"));
    }
    let problem: serde_json::Value = serde_json::from_slice(&bytes).expect("a problem");
    Err(problem["code"].as_str().expect("a code").to_owned())
}

/// Sends a request; returns the status and the body as JSON, or `None` if the connection ends without an answer.
pub(crate) async fn send_request(
    sender: &mut SendRequest<Full<hyper::body::Bytes>>,
    method: Method,
    target: &str,
    content: impl Into<hyper::body::Bytes>,
) -> Option<(u16, serde_json::Value)> {
    let uri = format!("https://control-plane{target}");
    let request = Request::builder().method(method).uri(uri).body(Full::new(content.into())).expect("a request");
    let response = sender.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&bytes).unwrap_or_default()))
}
