//! Serves other replicas: forwards their requests to the nodes whose channels this replica holds.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt;
use gpuaas_model::{Code, EnrolledNode, NodeId, PeerSite};
use gpuaas_trust::{ALPN_REPLICA, ReplicaIdentity};
use gpuaas_wire::session::{Observe, Refusal};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    accept::accept,
    channel::Channel,
    error::ChannelError,
    handshakes::Handshakes,
    idle::Idle,
    link::{Body, Link, collect, full, with_timeout},
};

/// Concurrent connections of all replicas: one per replica for short requests, and one for every tunnel and journal that it opens.
const CONNECTIONS_MAX: usize = 4_096;
/// A connection without a request for this long ends; a replica that needs one dials again.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Time that a connection has to finish running requests after its graceful shutdown has begun.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent requests per connection, which the tasks of every node may share.
const REQUESTS_MAX: u32 = 10_000;
/// Interval of HTTP/2 keep-alive pings, and the time within which each must be answered; otherwise the connection ends.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Accepts other replicas' connections until it is stopped.
pub struct PeerService {
    channel: Channel,
    control_plane: String,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: Handshakes,
    pub(crate) connections: Semaphore,
}

impl PeerService {
    /// Creates the service that answers for `channel`. `tls` must request client certificates; connections without one are refused.
    pub fn new(channel: Channel, control_plane: String, listener: TcpListener, tls: Arc<ServerConfig>) -> Self {
        let acceptor = TlsAcceptor::from(tls);
        let (handshakes, connections) = (Handshakes::default(), Semaphore::new(CONNECTIONS_MAX));
        Self { channel, control_plane, listener, acceptor, handshakes, connections }
    }

    /// Accepts replicas until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let service = Arc::new(self);
        loop {
            let (stream, from) = tokio::select! {
                () = stop.cancelled() => return,
                accepted = accept(&service.listener) => accepted,
            };
            let (service, stop) = (service.clone(), stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    served = service.serve(stream, PeerSite::of(from.ip())) => if let Err(error) = served {
                        tracing::debug!(%from, %error, "a replica's connection was refused or ended");
                    }
                }
            });
        }
    }

    async fn serve(self: &Arc<Self>, stream: TcpStream, from: PeerSite) -> Result<(), ChannelError> {
        let stream = self.handshakes.run(from, self.tls_handshake(stream)).await?;
        let refused = |_| ChannelError::Lost("too many connections".to_owned());
        let _connection = self.connections.try_acquire().map_err(refused)?;
        self.serve_connection(stream).await.map_err(|error| ChannelError::Lost(error.to_string()))
    }

    /// Performs the TLS handshake; refuses clients that are no replica of this control plane.
    async fn tls_handshake(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, ChannelError> {
        let lost = |error: &dyn std::fmt::Display| ChannelError::Lost(error.to_string());
        stream.set_nodelay(true).map_err(|error| lost(&error))?;
        let stream = self.acceptor.accept(stream).await.map_err(|error| lost(&error))?;
        let (_, tls) = stream.get_ref();
        let certificate =
            tls.peer_certificates().and_then(<[_]>::first).ok_or_else(|| lost(&"no client certificate"))?;
        // The same authority also certifies nodes, so the certificate must name a replica.
        let identity = ReplicaIdentity::of_certificate(certificate).map_err(|error| lost(&error))?;
        if identity.control_plane != self.control_plane || tls.alpn_protocol() != Some(ALPN_REPLICA) {
            return Err(lost(&"it is a replica of another control plane"));
        }
        Ok(stream)
    }

    /// Serves a connection until it closes or is idle for [`IDLE_MAX`].
    pub(crate) async fn serve_connection<S>(self: &Arc<Self>, stream: S) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (this, idle) = (self.clone(), Idle::default());
        let carried = idle.clone();
        let service = service_fn(move |request| {
            let (this, busy) = (this.clone(), carried.busy());
            async move {
                let answer = this.answer(request).await.unwrap_or_else(error_response);
                Ok::<_, Infallible>(answer.map(|body| {
                    let held = body.map_frame(move |frame| {
                        // Held until the body is read or dropped.
                        let _busy = &busy;
                        frame
                    });
                    held.boxed_unsync()
                }))
            }
        });
        let mut connection = pin!(
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .max_concurrent_streams(REQUESTS_MAX)
                .serve_connection(TokioIo::new(stream), service)
        );
        tokio::select! {
            ended = &mut connection => return ended,
            () = idle.wait_idle_for(IDLE_MAX) => {}
        }
        connection.as_mut().graceful_shutdown();
        timeout(SHUTDOWN_TIMEOUT, connection).await.unwrap_or(Ok(()))
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, ChannelError> {
        let path = request.uri().path().to_owned();
        let unknown = || ChannelError::Protocol("no such path".to_owned());
        let (node, rest) = path.strip_prefix("/nodes/").and_then(|path| path.split_once('/')).ok_or_else(unknown)?;
        let node: NodeId = node.parse().map_err(|_| unknown())?;
        match (request.method(), rest) {
            (&Method::POST, "observe") => {
                let body = with_timeout(collect(request.into_body())).await?;
                let Observe { units, .. } =
                    serde_json::from_slice(&body).map_err(|error| ChannelError::Protocol(error.to_string()))?;
                self.channel.observe_here(node, units).await?;
                Ok(Response::new(full(Bytes::new())))
            }
            _ => match parse_route(node, rest).ok_or_else(unknown)? {
                Route::Control(path) => forward(self.channel.link_here(node)?, path, request, None).await,
                Route::Enrolled(node, path) => forward(self.channel.link_to_here(node)?, path, request, None).await,
                Route::Bulk(node, path) => {
                    let link = self.channel.bulk_here(node).await?;
                    let guard = link.ended.clone();
                    forward(link, path, request, Some(guard)).await
                }
            },
        }
    }
}

/// The node connection on which a request is forwarded, and its path at the agent.
enum Route<'a> {
    /// The control connection, whatever its enrollment.
    Control(&'a str),
    /// The control connection of one enrollment.
    Enrolled(EnrolledNode, &'a str),
    /// A new bulk connection of one enrollment.
    Bulk(EnrolledNode, &'a str),
}

/// Parses `control/PATH`, `enrolled/EPOCH/PATH` or `bulk/EPOCH/PATH`.
fn parse_route(node: NodeId, rest: &str) -> Option<Route<'_>> {
    if let Some(path) = rest.strip_prefix("control").filter(|path| path.starts_with('/')) {
        return Some(Route::Control(path));
    }
    let (kind, rest) = rest.split_once('/')?;
    let (epoch, path) = rest.split_at_checked(rest.find('/')?)?;
    let node = EnrolledNode { node, epoch: epoch.parse().ok()? };
    match kind {
        "enrolled" => Some(Route::Enrolled(node, path)),
        "bulk" => Some(Route::Bulk(node, path)),
        _ => None,
    }
}

/// Forwards a request and streams the response back unchanged. `alive` ends the node's connection together with the response.
async fn forward(
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
            // Held until the body is read or dropped.
            let _alive = &alive;
        });
        StreamBody::new(frames).boxed_unsync()
    }))
}

fn error_response(error: ChannelError) -> Response<Body> {
    let (status, refusal) = match error {
        ChannelError::Refused(refusal) => {
            (StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY), refusal)
        }
        error => {
            // This replica does not hold the channel, or no longer: the caller looks up the holder again.
            (StatusCode::MISDIRECTED_REQUEST, Refusal { code: Code::NodeUnreachable, message: error.to_string() })
        }
    };
    let mut response = Response::new(full(serde_json::to_vec(&refusal).unwrap_or_default()));
    *response.status_mut() = status;
    response
}
