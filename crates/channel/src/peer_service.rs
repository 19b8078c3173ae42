//! Answers other replicas: hands their requests on to the nodes whose channels are held here.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt;
use gpuaas_model::{Code, NodeId};
use gpuaas_trust::{ALPN_REPLICA, ReplicaIdentity};
use gpuaas_wire::session::{Observe, Refusal};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    channel::{Channel, ChannelError},
    link::{Body, Link, collect, full},
};

/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of one connection at once: every node's tasks may share it.
const REQUESTS_MAX: u32 = 10_000;
/// A beat goes out when nothing was heard for this long, and ends the connection when it is not answered in as long again.
const BEAT: Duration = Duration::from_secs(5);

/// Accepts other replicas until it is stopped.
pub struct PeerService {
    channel: Channel,
    control_plane: String,
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl PeerService {
    /// Answers for `channel` on a listener that asks for certificates.
    pub fn new(channel: Channel, control_plane: String, listener: TcpListener, tls: Arc<ServerConfig>) -> Self {
        Self { channel, control_plane, listener, acceptor: TlsAcceptor::from(tls) }
    }

    /// Accepts replicas until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let service = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = service.listener.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: give the ones in use a moment to close.
                    tracing::warn!(%error, "a replica's connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (service, stop) = (service.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    served = service.serve(stream) => if let Err(error) = served {
                        tracing::debug!(%from, %error, "a replica's connection was turned away or ended");
                    }
                }
            });
        }
    }

    async fn serve(self: &Arc<Self>, stream: TcpStream) -> Result<(), String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream))
            .await
            .map_err(|_| "the handshake took too long".to_owned())?
            .map_err(|error| error.to_string())?;
        let (_, tls) = stream.get_ref();
        let certificate = tls.peer_certificates().and_then(<[_]>::first).ok_or("no client certificate")?;
        // Nodes hold certificates of the same authority: none of them is a replica.
        let identity = ReplicaIdentity::of_certificate(certificate).map_err(|error| error.to_string())?;
        if identity.control_plane != self.control_plane || tls.alpn_protocol() != Some(ALPN_REPLICA) {
            return Err("it is a replica of another control plane".to_owned());
        }
        let this = self.clone();
        let service = service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.answer(request).await.unwrap_or_else(refused)) }
        });
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(BEAT)
            .keep_alive_timeout(BEAT)
            .max_concurrent_streams(REQUESTS_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(|error| error.to_string())
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, ChannelError> {
        let path = request.uri().path().to_owned();
        let unknown = || ChannelError::Protocol("replicas have no such path".to_owned());
        let (node, rest) = path.strip_prefix("/nodes/").and_then(|path| path.split_once('/')).ok_or_else(unknown)?;
        let node: NodeId = node.parse().map_err(|_| unknown())?;
        match (request.method(), rest) {
            (&Method::POST, "observe") => {
                let body = collect(request.into_body()).await?;
                let Observe { units } =
                    serde_json::from_slice(&body).map_err(|error| ChannelError::Protocol(error.to_string()))?;
                self.channel.observe_here(node, units).await?;
                Ok(Response::new(full(Bytes::new())))
            }
            _ => match (rest.strip_prefix("control"), rest.strip_prefix("bulk")) {
                (Some(path), _) => hand_on(self.channel.link_here(node)?, path, request, None).await,
                (_, Some(path)) => {
                    let link = self.channel.bulk_here(node).await?;
                    let alive = link.ended.clone();
                    hand_on(link, path, request, Some(alive)).await
                }
                _ => Err(unknown()),
            },
        }
    }
}

/// Sends a request on and streams back what is answered, word for word. `alive` ends the node's connection with the answer.
async fn hand_on(
    link: Link,
    path: &str,
    request: Request<Incoming>,
    alive: Option<CancellationToken>,
) -> Result<Response<Body>, ChannelError> {
    let alive = alive.map(CancellationToken::drop_guard);
    let (parts, body) = request.into_parts();
    let headers: HeaderMap = parts.headers;
    let response = link.send(parts.method, path, headers, body.map_err(std::io::Error::other).boxed_unsync()).await?;
    Ok(response.map(|body| {
        let frames = TryStreamExt::map_err(BodyStream::new(body), std::io::Error::other).inspect_ok(move |_| {
            // Held for as long as somebody reads.
            let _alive = &alive;
        });
        StreamBody::new(frames).boxed_unsync()
    }))
}

fn refused(error: ChannelError) -> Response<Body> {
    let (status, refusal) = match error {
        ChannelError::Refused(refusal) => {
            (StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY), refusal)
        }
        error => {
            // Not here, or here no more: whoever asked looks again.
            (StatusCode::MISDIRECTED_REQUEST, Refusal { code: Code::NodeUnreachable, message: error.to_string() })
        }
    };
    let mut response = Response::new(full(serde_json::to_vec(&refusal).unwrap_or_default()));
    *response.status_mut() = status;
    response
}
