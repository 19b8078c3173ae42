//! Accepts nodes' connections: handshake, identity, admission, then the service that the connection's protocol selects.

use std::{net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use gpuaas_model::{Clock, Code, NodeId, PeerSite, Timestamp};
use gpuaas_trust::{ALPN_FETCH, ALPN_NODE, NodeIdentity, expires_at};
use gpuaas_wire::session::{ConnectionKind, PROTOCOL};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    accept::accept,
    backend::{Admission, ChannelBackend, PresentedCertificate},
    channel::{Channel, ChannelOptions, Order, Shared},
    connections::ConnectionPermit,
    error::ChannelError,
    fetch,
    handshakes::Handshakes,
    liveness::Liveness,
    proxy_protocol::ProxyProtocol,
    reports::observe,
    requests::{send_endpoints, send_keys},
    session::Session,
};

/// Longest interval between two reads of the clock while a certificate approaches expiry, so that a clock adjustment is noticed.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Accepts nodes' connections until it is stopped.
pub struct ChannelService {
    channel: Channel,
    orders: mpsc::UnboundedReceiver<Order>,
    unreachable_after: Duration,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    proxies: ProxyProtocol,
}

/// The part of the service that its connections share.
struct Serving {
    channel: Channel,
    backend: Arc<dyn ChannelBackend>,
    liveness: Liveness,
    /// Held while a list of endpoints is read and broadcast, so that broadcasts arrive in the order of the changes.
    broadcast: tokio::sync::Mutex<()>,
}

impl Channel {
    /// Creates the channel for nodes that connect to `listener`. Accepts nothing before [`ChannelService::run`], which takes the backend,
    /// so that the backend can be built with the channel.
    pub fn new(listener: TcpListener, options: &ChannelOptions, tls: Arc<ServerConfig>) -> (Self, ChannelService) {
        let (shared, orders) = Shared::new(options);
        let channel = Self { shared };
        let service = ChannelService {
            channel: channel.clone(),
            orders,
            unreachable_after: options.unreachable_after,
            listener,
            acceptor: TlsAcceptor::from(tls),
            proxies: options.proxies.clone(),
        };
        (channel, service)
    }

    /// Starts the unreachable timer of a node; a new connection stops it.
    /// For nodes that were recorded as connected when this process started.
    pub fn expect_reconnect(&self, node: NodeId) {
        self.shared.order(Order::ExpectReconnect(node));
    }
}

impl Serving {
    /// Does what a request ordered.
    fn execute(self: &Arc<Self>, order: Order) {
        match order {
            Order::Recheck(node) => {
                let (shared, backend) = (self.channel.shared.clone(), self.backend.clone());
                tokio::spawn(async move { shared.rechecks.check(&shared.connections, &*backend, node).await });
            }
            Order::ExpectReconnect(node) => self.liveness.expect_reconnect(node, Duration::ZERO),
            Order::BroadcastEndpoints => {
                let serving = self.clone();
                tokio::spawn(async move {
                    let _one_at_a_time = serving.broadcast.lock().await;
                    serving.channel.send_to_all(serving.backend.endpoints().await).await;
                });
            }
        }
    }
}

impl ChannelService {
    /// Returns the listener's local address.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts nodes until `stop` is cancelled. Handshakes run in their own tasks, so that a slow one does not delay accepting.
    pub async fn run(mut self, backend: Arc<dyn ChannelBackend>, stop: CancellationToken) {
        let liveness = Liveness::new(backend.clone(), self.unreachable_after);
        let serving =
            Arc::new(Serving { channel: self.channel, backend, liveness, broadcast: tokio::sync::Mutex::default() });
        let handshakes = Arc::new(Handshakes::default());
        loop {
            let (mut stream, from) = tokio::select! {
                // Orders first: a timer that was ordered before a node connects must be stopped by that connection.
                biased;
                () = stop.cancelled() => return,
                Some(order) = self.orders.recv() => {
                    serving.execute(order);
                    continue;
                }
                accepted = accept(&self.listener) => accepted,
            };
            let (serving, acceptor, stop) = (serving.clone(), self.acceptor.clone(), stop.clone());
            let (handshakes, proxies) = (handshakes.clone(), self.proxies.clone());
            let served = async move {
                let peer = proxies.peer(&mut stream, from.ip()).await;
                let site = PeerSite::of(peer.map_err(|error| ChannelError::Lost(error.to_string()))?.address);
                let (presented, stream) = handshakes.run(site, tls_handshake(acceptor, stream)).await?;
                let refused = |why: &str| ChannelError::Lost(why.to_owned());
                let shared = &serving.channel.shared;
                if !shared.rate_limits.connects.try_take(&presented.identity, Instant::now()) {
                    return Err(refused("the node connects too often"));
                }
                let place = shared.connections.enter(presented);
                let place = place.ok_or_else(|| refused("too many connections"))?;
                serve(&serving, Arc::new(place), stream).await
            };
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    result = served => if let Err(error) = result {
                        tracing::debug!(%from, %error, "a node's connection was refused or ended");
                    }
                }
            });
        }
    }
}

async fn tls_handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> Result<(PresentedCertificate, TlsStream<TcpStream>), ChannelError> {
    let lost = |error: &dyn std::fmt::Display| ChannelError::Lost(error.to_string());
    // Tasks are small and must be sent at once.
    stream.set_nodelay(true).map_err(|error| lost(&error))?;
    let stream = acceptor.accept(stream).await.map_err(|error| lost(&error))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|der| der.to_vec());
    let certificate = certificate.ok_or_else(|| ChannelError::Lost("no client certificate".to_owned()))?;
    let identity = NodeIdentity::of_certificate(&certificate).map_err(|error| lost(&error))?;
    Ok((PresentedCertificate { identity, certificate }, stream))
}

/// Serves a connection that is already counted in `Connections`, so that a revocation from here on ends it too.
async fn serve(
    serving: &Serving,
    place: Arc<ConnectionPermit>,
    stream: TlsStream<TcpStream>,
) -> Result<(), ChannelError> {
    let (presented, node) = (&place.presented, place.presented.identity.node);
    let admission = serving.backend.admit(presented).await.map_err(|refused| {
        tracing::warn!(%node, code = %refused.code, reason = %refused.message, "a node was refused");
        ChannelError::Lost(refused.message)
    })?;
    // Set only here, so it cannot be set already.
    let _ = place.admitted.set(admission);
    match (stream.get_ref().1.alpn_protocol(), admission) {
        (Some(ALPN_NODE), Admission::Full) => serve_until_expiry(serving, &place, stream).await,
        (Some(ALPN_NODE), Admission::RenewalOnly) => {
            tracing::info!(%node, code = %Code::CertificateExpired, "a node's certificate has expired; the node must renew it first");
            Err(ChannelError::Lost("the certificate has expired".to_owned()))
        }
        (Some(ALPN_FETCH), _) => {
            fetch::serve(serving.channel.shared.clone(), serving.backend.clone(), place, stream).await;
            Ok(())
        }
        _ => Err(ChannelError::Protocol("no known application protocol".to_owned())),
    }
}

/// Serves a node until its certificate expires; the node then reconnects with a newer certificate.
async fn serve_until_expiry(
    serving: &Serving,
    place: &ConnectionPermit,
    stream: TlsStream<TcpStream>,
) -> Result<(), ChannelError> {
    let node = place.presented.identity.node;
    let ends_at = expires_at(&place.presented.certificate).map_err(|error| ChannelError::Lost(error.to_string()))?;
    let clock = serving.channel.shared.clock.clone();
    let mut served = Box::pin(serve_reversed(serving, place, stream));
    tokio::select! {
        served = &mut served => return served,
        () = until_after(&*clock, ends_at) => {}
    }
    tracing::info!(%node, "a node's connection is ended with its certificate; it connects again with a newer one");
    place.end.cancel();
    served.await
}

async fn until_after(clock: &dyn Clock, end: Timestamp) {
    while clock.now() <= end {
        // The certificate is valid through its last millisecond.
        let left = end.since(clock.now()) + Duration::from_millis(1);
        sleep(left.min(EXPIRY_CHECK_INTERVAL)).await;
    }
}

async fn serve_reversed(
    serving: &Serving,
    place: &ConnectionPermit,
    stream: TlsStream<TcpStream>,
) -> Result<(), ChannelError> {
    let identity = &place.presented.identity;
    let session = Session::open(identity.enrolled(), stream, &place.end, serving.backend.clone()).await?;
    let _end = session.link.ended.clone().drop_guard();
    if !session.hello.protocols.contains(&PROTOCOL) {
        return Err(ChannelError::Protocol("the agent supports no protocol version of this control plane".to_owned()));
    }
    match session.hello.connection.clone() {
        ConnectionKind::Bulk { request } => {
            let ended = session.link.ended.clone();
            serving.channel.shared.deliver_bulk(&request, session);
            ended.cancelled().await;
            Ok(())
        }
        ConnectionKind::Control => serve_control(serving, session, identity).await,
    }
}

async fn serve_control(serving: &Serving, mut session: Session, identity: &NodeIdentity) -> Result<(), ChannelError> {
    let (channel, backend, node) = (&serving.channel, &serving.backend, session.node);
    let shared = &channel.shared;
    if !shared.rate_limits.channels.try_take(identity, Instant::now()) {
        return Err(ChannelError::Lost("the node opens its channel too often".to_owned()));
    }
    if channel.is_cloned(&session).await {
        backend.identity_cloned(node, &session.hello).await;
        return Err(ChannelError::Lost("another live agent uses this identity".to_owned()));
    }
    let (version, signed_set) = backend.key_set().await;
    // A node that reports a newer key set would refuse this one; the backend decides about it in `connected`.
    if session.hello.key_set_version <= version {
        send_keys(&session.link, &signed_set).await?;
        session.hello.key_set_version = version;
    }
    shared.install(session.clone());
    // However the session ends, including by a panic, its end is recorded and the unreachable timer starts.
    let outcome = AssertUnwindSafe(run_session(serving, &session)).catch_unwind().await;
    session.link.ended.cancel();
    shared.remove(&session);
    if backend.disconnected(node, session.connection).await {
        serving.liveness.expect_reconnect(node, session.link.last_heard.silence());
    }
    outcome.unwrap_or_else(|_| Err(ChannelError::Lost("the control plane failed".to_owned())))
}

/// Sends the endpoints, records an installed session, requests unit reports, and returns when the session ends.
async fn run_session(serving: &Serving, session: &Session) -> Result<(), ChannelError> {
    let (backend, node) = (&serving.backend, session.node);
    // After the installation: a broadcast before it did not reach this session.
    send_endpoints(&session.link, backend.endpoints().await).await;
    let recorded = backend.connected(session.enrolled(), session.connection, &session.hello).await;
    recorded.map_err(|refused| ChannelError::Lost(refused.message))?;
    // Only after recording succeeded: otherwise a running unreachable timer continues.
    serving.liveness.connected(node);
    let units = backend.observed_units(node).await;
    if let Err(error) = observe(&serving.channel.shared, session.clone(), units).await {
        tracing::debug!(%node, %error, "could not observe the units of the node");
    }
    session.link.ended.cancelled().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    struct AdjustableClock(AtomicI64, Instant);

    impl Clock for AdjustableClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::SeqCst)).plus(self.1.elapsed())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn certificate_expiry_is_noticed_also_when_the_clock_is_set() {
        let day = Duration::from_secs(24 * 3_600);
        let clock = AdjustableClock(AtomicI64::new(0), Instant::now());
        until_after(&clock, Timestamp::from_millis(0).plus(day)).await;
        assert_eq!(clock.1.elapsed(), day + Duration::from_millis(1));
        let set = async {
            sleep(Duration::from_secs(90)).await;
            clock.0.fetch_add(2 * 24 * 3_600_000, Ordering::SeqCst);
        };
        let (end, began) = (clock.now().plus(day), Instant::now());
        tokio::join!(set, until_after(&clock, end));
        assert_eq!(began.elapsed(), Duration::from_secs(120));
    }
}
