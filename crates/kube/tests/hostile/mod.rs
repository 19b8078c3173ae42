//! A hostile apiserver: genuine TLS with a certificate of its cluster, and any answer that a script sends.
//!
//! Nothing listens: a connection is a stream in memory, so that time can be paused. Answers are generated piece by piece, so that the
//! server needs little memory however much it sends.
#![allow(clippy::unwrap_used)] // A harness fails by panicking, like its tests.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use gpuaas_kube::KubeconfigText;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use secrecy::SecretString;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    runtime::Handle,
};
use tokio_rustls::TlsAcceptor;

/// Bytes of a connection that wait to be read by the peer.
const WAITING_BYTES: usize = 64 * 1_024;
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1_024;

/// The address in the certificate.
pub(crate) const ADDRESS: &str = "127.0.0.1";

type Piece = Cow<'static, [u8]>;

/// The answer to one request.
pub(crate) struct Reply {
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
    every: Duration,
}

impl Reply {
    /// Sends exactly these bytes.
    pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::pieces(std::iter::once(bytes.into()))
    }

    /// Sends these pieces as fast as the peer reads them.
    pub(crate) fn pieces<P: Into<Vec<u8>>>(pieces: impl Iterator<Item = P> + Send + 'static) -> Self {
        Self { pieces: Box::new(pieces.map(|piece| Cow::Owned(piece.into()))), every: Duration::ZERO }
    }

    /// Adds a pause before each piece.
    pub(crate) fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Adds `head`, which is sent first.
    pub(crate) fn with_head(self, head: &'static str) -> Self {
        Self { pieces: Box::new(std::iter::once(Cow::Borrowed(head.as_bytes())).chain(self.pieces)), ..self }
    }

    /// Sends a JSON body with a `content-length`.
    pub(crate) fn json(status: &str, body: &str) -> Self {
        let length = body.len();
        Self::bytes(format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    }

    /// Sends a JSON body in chunks of about 16 KiB: `head`, then `item` until about `bytes` are sent, then `tail`.
    pub(crate) fn chunks(head: &'static str, item: &'static str, tail: &'static str, bytes: usize) -> Self {
        let of_items = item.repeat((16 * 1_024 / item.len()).max(1));
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
        let begin = [
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
            chunk(head),
        ];
        let items = chunk(&of_items);
        let middle = std::iter::repeat_n(items, bytes / of_items.len());
        let end = [chunk(tail), b"0\r\n\r\n".to_vec()];
        Self::pieces(begin.into_iter().chain(middle).chain(end))
    }
}

/// The server; `script` maps a request line (`GET /readyz?verbose`) to its answer.
pub(crate) struct Hostile {
    /// A kubeconfig with a token and the CA of the server's certificate.
    pub(crate) kubeconfig: String,
    /// Number of connections so far.
    pub(crate) opened: AtomicUsize,
    /// Number of requests received so far.
    pub(crate) requests: AtomicUsize,
    acceptor: TlsAcceptor,
    script: Box<dyn Fn(&str) -> Reply + Send + Sync>,
    runtime: Handle,
}

impl Hostile {
    /// Returns a server that runs on `runtime`.
    pub(crate) fn new(runtime: Handle, script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        let (kubeconfig, config) = credentials();
        Arc::new(Self {
            kubeconfig,
            opened: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            script: Box::new(script),
            runtime,
        })
    }

    /// Opens a new connection.
    pub(crate) fn open(self: &Arc<Self>) -> DuplexStream {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let (near, far) = tokio::io::duplex(WAITING_BYTES);
        let server = self.clone();
        self.runtime.spawn(async move {
            // Fails when the peer closes the connection.
            let _ = server.serve(far).await;
        });
        near
    }

    async fn serve(&self, stream: DuplexStream) -> std::io::Result<()> {
        let mut stream = self.acceptor.accept(stream).await?;
        loop {
            let line = request(&mut stream).await?;
            self.requests.fetch_add(1, Ordering::SeqCst);
            let reply = (self.script)(&line);
            for piece in reply.pieces {
                if !reply.every.is_zero() {
                    tokio::time::sleep(reply.every).await;
                }
                stream.write_all(&piece).await?;
                stream.flush().await?;
            }
        }
    }
}

/// Returns method and target of the next request; reads its body and drops it.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut read = Vec::new();
    let head = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let mut piece = [0; 4_096];
        let bytes = stream.read(&mut piece).await?;
        if bytes == 0 || read.len() > REQUEST_BYTES_MAX {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&piece[..bytes]);
    };
    let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let mut left = vec![0; length.unwrap_or(0).saturating_sub(read.len() - head)];
    stream.read_exact(&mut left).await?;
    let line = String::from_utf8_lossy(&read[..head]).lines().next().unwrap_or_default().to_owned();
    Ok(line.trim_end_matches(" HTTP/1.1").to_owned())
}

fn credentials() -> (String, ServerConfig) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::IpAddress(ADDRESS.parse().unwrap()));
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let token = SecretString::from("a.token.of.its.own");
    let text =
        KubeconfigText { server: "https://127.0.0.1:6443", ca_pem: &ca_pem, context: "x", user: "x", token: &token };
    (text.render().to_string(), config)
}
