//! Serves the API over TLS.

use std::{convert::Infallible, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use gpuaas_api::{Activity, HEADERS_BYTES_MAX, PeerAddress, Share, ShareError, ShareLimits, Shares};
use gpuaas_channel::{Idle, Peer, ProxyError, ProxyProtocol, accept};
use gpuaas_model::PeerSite;
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    progress::{ProgressRule, StallGuard},
    responses::Responses,
    sockets,
};

/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time to receive the headers of a request, and to receive the first byte of the next request on a kept HTTP/1 connection.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Most concurrent requests of one HTTP/2 connection.
const REQUESTS_MAX: u32 = 128;
/// Most bytes of a response that HTTP/2 buffers until the client takes them.
const UNSENT_BYTES_MAX: usize = 32 * 1_024;
/// An HTTP/2 connection gets a PING after this long without a frame from the client.
const PING_EVERY: Duration = Duration::from_secs(20);
/// A connection without a request for this long is closed, even if the client answers PINGs.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Longest time for requests in progress when a connection closes.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// ALPN protocol of HTTP/2. A client without ALPN speaks HTTP/1: the server does not wait to detect the protocol from its bytes.
const ALPN_HTTP2: &[u8] = b"h2";

/// Most connections in total, and per address (per site for IPv6): a sixteenth of all. One address may be the NAT of a whole office, and an
/// HTTP/2 client needs one connection.
const CONNECTIONS_MAX: ShareLimits = ShareLimits { total: 4_096, per_address: 256 };

/// The shared state of all connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    acceptor: TlsAcceptor,
    router: Router,
    proxies: ProxyProtocol,
    shares: Shares,
}

/// Reasons why a connection ended early.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("too many connections: {0}")]
    Share(#[from] ShareError),
    #[error("it was displaced by an address with fewer connections")]
    Displaced,
    #[error("the TLS handshake failed or took too long")]
    Handshake,
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl Api {
    /// Creates a server for `router` that accepts direct connections and connections through `proxies`.
    pub(crate) fn new(tls: Arc<ServerConfig>, router: Router, proxies: ProxyProtocol) -> Self {
        Self { acceptor: TlsAcceptor::from(tls), router, proxies, shares: Shares::new(CONNECTIONS_MAX) }
    }

    /// Serves until `stop`, then lets requests in progress finish.
    pub(crate) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let served = TaskTracker::new();
        if let Err(error) = sockets::limit(&listener) {
            tracing::warn!(%error, "the kernel's default limits apply to the API's connections");
        }
        loop {
            let (stream, from) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&listener) => accepted,
            };
            let (api, stop) = (self.clone(), stop.clone());
            // Direct connections are counted in the order of their arrival; proxied ones once their PROXY header was read.
            let is_direct = !self.proxies.is_trusted(from.ip());
            let share = is_direct.then(|| self.shares.take(PeerSite::of(from.ip())));
            served.spawn(async move {
                match api.handle(stream, from.ip(), share, &stop).await {
                    Ok(()) => {}
                    Err(
                        error @ (ConnectionError::Proxy(_) | ConnectionError::Share(_) | ConnectionError::Displaced),
                    ) => {
                        tracing::warn!(%from, %error, "a connection was dropped");
                    }
                    Err(error) => tracing::debug!(%from, %error, "a connection failed"),
                }
            });
        }
        // Refuse new connections instead of queueing them.
        drop(listener);
        served.close();
        // Event streams end with the process; other requests get the grace period.
        let _ = timeout(SHUTDOWN_TIMEOUT, served.wait()).await;
    }

    /// Serves a connection until it ends or another address displaces it.
    async fn handle(
        self,
        mut stream: TcpStream,
        from: IpAddr,
        share: Option<Result<Share, ShareError>>,
        stop: &CancellationToken,
    ) -> Result<(), ConnectionError> {
        let peer = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            peer = self.proxies.peer(&mut stream, from) => peer?,
        };
        let share = share.unwrap_or_else(|| self.shares.take(PeerSite::of(peer.address)))?;
        tokio::select! {
            () = share.displaced().cancelled() => Err(ConnectionError::Displaced),
            ended = self.serve_http(stream, peer, share.activity(), stop) => ended,
        }
    }

    /// Serves the connection with the protocol that its handshake negotiated.
    async fn serve_http(
        self,
        stream: TcpStream,
        peer: Peer,
        activity: &Activity,
        stop: &CancellationToken,
    ) -> Result<(), ConnectionError> {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = accept_tls(&self.acceptor, stream) => accepted,
        };
        let stream = accepted.ok_or(ConnectionError::Handshake)?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
        let from = match peer.is_proxied {
            true => PeerAddress::from_proxy(peer.address),
            false => PeerAddress::of(peer.address),
        };
        Ok(serve_stream(stream, is_http2, (from, activity.clone()), self.router, stop).await?)
    }
}

async fn accept_tls(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<TlsStream<StallGuard<TcpStream>>> {
    let _ = stream.set_nodelay(true);
    let stream = StallGuard::new(stream, ProgressRule::default());
    timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?.ok()
}

/// Serves a connection. Headers and requests have limits. The connection closes when it is idle for [`IDLE_MAX`] or the client does not
/// take its responses.
async fn serve_stream<S>(
    stream: S,
    is_http2: bool,
    (from, activity): (PeerAddress, Activity),
    router: Router,
    stop: &CancellationToken,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (idle, responses) = (Idle::default(), Responses::default());
    let (tracked_idle, tracked) = (idle.clone(), responses.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(from);
        request.extensions_mut().insert(activity.clone());
        let guards = (tracked_idle.busy(), activity.begin_request());
        let (response, tracked) = (router.clone().oneshot(request), tracked.clone());
        async move { Ok::<_, Infallible>(response.await?.map(|body| tracked.track(body, guards))) }
    });
    let stream = TokioIo::new(stream);
    if is_http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(HEADERS_TIMEOUT)
            .max_concurrent_streams(REQUESTS_MAX)
            .max_send_buf_size(UNSENT_BYTES_MAX)
            .max_header_list_size(HEADERS_BYTES_MAX);
        serve_until_idle(http.serve_connection(stream, service), &idle, &responses, stop).await
    } else {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT).max_buf_size(HEADERS_BYTES_MAX as usize);
        serve_until_idle(http.serve_connection(stream, service), &idle, &responses, stop).await
    }
}

/// Shuts a connection down gracefully when it is idle or everything stops; drops it when the client does not take its responses.
async fn serve_until_idle<C>(
    connection: C,
    idle: &Idle,
    responses: &Responses,
    stop: &CancellationToken,
) -> Result<(), C::Error>
where
    C: GracefulConnection,
{
    let mut connection = pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        () = responses.stalled() => return Ok(()),
        () = stop.cancelled() => {}
        () = idle.wait_idle_for(IDLE_MAX) => {}
    }
    connection.as_mut().graceful_shutdown();
    timeout(SHUTDOWN_TIMEOUT, connection).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests;
