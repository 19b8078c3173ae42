//! Serves the API over TLS.

use std::{sync::Arc, time::Duration};

use axum::Router;
use gpuaas_api::PeerAddress;
use hyper::{Request, body::Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::shares::Shares;

/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for the headers of a request, also for the first byte of the next one on a connection that is kept.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest headers of a request, in bytes.
const HEADERS_BYTES_MAX: u32 = 64 * 1_024;
/// Requests of one HTTP/2 connection at once.
const REQUESTS_MAX: u32 = 128;
/// A beat goes out on an HTTP/2 connection when nothing was heard for this long.
const BEAT_EVERY: Duration = Duration::from_secs(20);
/// How long requests under way have to end when the control plane stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What one connection may take: time for its headers, and room for them and for requests at once.
fn bounded() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .max_buf_size(HEADERS_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(BEAT_EVERY)
        .keep_alive_timeout(HEADERS_TIMEOUT)
        .max_concurrent_streams(REQUESTS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX);
    builder
}

/// Serves until `stop`, then lets requests under way end.
pub(crate) async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, router: Router, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(tls);
    let shares = Shares::default();
    let graceful = Arc::new(GracefulShutdown::new());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let address = PeerAddress::of(from.ip());
        let share = match shares.take(address) {
            Ok(share) => share,
            Err(error) => {
                tracing::warn!(%from, %error, "a connection was dropped");
                continue;
            }
        };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
            let builder = bounded();
            let service = router.map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(address);
                request
            });
            let service = TowerToHyperService::new(service);
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%from, %error, "a connection broke");
            }
            drop(share);
        });
    }
    if let Ok(graceful) = Arc::try_unwrap(graceful) {
        // Streams of events end with the process; everything else gets its time.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
    }
}
