//! Accepts nodes: handshake, identity, admission, and then what the connection is for.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use gpuaas_model::{Code, NodeId};
use gpuaas_trust::{ALPN_FETCH, ALPN_NODE, NodeIdentity};
use gpuaas_wire::session::{ConnectionKind, PROTOCOL};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{Admission, ChannelBackend, Presented},
    channel::{Channel, ChannelError, ChannelOptions, Shared},
    connections::Place,
    fetch,
    handshakes::Handshakes,
    reports::observe,
    requests::{give_endpoints, give_keys},
    session::Session,
};

/// Connections at once whose handshake has not ended: of a whole fleet that comes back.
const STRANGERS_MAX: usize = 8_192;
/// Connections of all nodes at once.
const CONNECTIONS_MAX: usize = 20_000;

/// Accepts connections until it is stopped.
pub struct ChannelService {
    channel: Channel,
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Channel {
    /// The channel of those who connect to that listener. Nothing is accepted before [`ChannelService::run`].
    pub fn new(
        listener: TcpListener,
        options: &ChannelOptions,
        tls: Arc<ServerConfig>,
        backend: Arc<dyn ChannelBackend>,
    ) -> (Self, ChannelService) {
        let channel = Self { shared: Shared::new(backend, options) };
        let service = ChannelService { channel: channel.clone(), listener, acceptor: TlsAcceptor::from(tls) };
        (channel, service)
    }

    /// Counts a node as gone from now on, unless it connects: for nodes that were connected when this process started.
    pub fn await_return(&self, node: NodeId) {
        self.shared.liveness.await_return(node);
    }
}

impl ChannelService {
    /// Where it listens.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts nodes until `stop` is cancelled. Nobody's handshake holds up the accepting.
    pub async fn run(self, stop: CancellationToken) {
        let handshakes = Arc::new(Handshakes::new());
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: give the ones in use a moment to close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(stranger) = strangers.clone().try_acquire_owned() else {
                tracing::debug!(%from, "too many handshakes wait; a connection was dropped");
                continue;
            };
            let (channel, acceptor, stop) = (self.channel.clone(), self.acceptor.clone(), stop.clone());
            let (handshakes, connections) = (handshakes.clone(), connections.clone());
            let served = async move {
                let (presented, stream) = handshakes.in_turn(shaken(acceptor, stream)).await?;
                drop(stranger);
                let refused = || ChannelError::Lost("there are too many connections".to_owned());
                let _connection = connections.try_acquire_owned().map_err(|_| refused())?;
                let place = channel.shared.connections.enter(presented).ok_or_else(refused)?;
                serve(channel, &place, stream).await
            };
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    result = served => if let Err(error) = result {
                        tracing::debug!(%from, %error, "a node's connection was turned away or ended");
                    }
                }
            });
        }
    }
}

async fn shaken(acceptor: TlsAcceptor, stream: TcpStream) -> Result<(Presented, TlsStream<TcpStream>), ChannelError> {
    let lost = |error: &dyn std::fmt::Display| ChannelError::Lost(error.to_string());
    // Tasks are small and must leave at once.
    stream.set_nodelay(true).map_err(|error| lost(&error))?;
    let stream = acceptor.accept(stream).await.map_err(|error| lost(&error))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|der| der.to_vec());
    let certificate = certificate.ok_or_else(|| ChannelError::Lost("no client certificate".to_owned()))?;
    let identity = NodeIdentity::of_certificate(&certificate).map_err(|error| lost(&error))?;
    Ok((Presented { identity, certificate }, stream))
}

/// Serves a connection that has its place already: whatever makes its node unwelcome from here on ends it too.
async fn serve(channel: Channel, place: &Place, stream: TlsStream<TcpStream>) -> Result<(), ChannelError> {
    let (presented, node) = (&place.presented, place.presented.identity.node);
    let admission = channel.shared.backend.admit(presented).await.map_err(|refused| {
        tracing::warn!(%node, code = %refused.code, reason = %refused.message, "a node was refused");
        ChannelError::Lost(refused.message)
    })?;
    match (stream.get_ref().1.alpn_protocol(), admission) {
        (Some(ALPN_NODE), Admission::Full) => serve_reversed(channel, node, stream, &place.end).await,
        (Some(ALPN_NODE), Admission::RenewalOnly) => {
            tracing::info!(%node, code = %Code::CertificateExpired, "a node's certificate has expired; it must renew it first");
            Err(ChannelError::Lost("the certificate has expired".to_owned()))
        }
        (Some(ALPN_FETCH), _) => {
            fetch::serve(channel.shared.backend.clone(), presented.clone(), stream, &place.end).await;
            Ok(())
        }
        _ => Err(ChannelError::Protocol("no known application protocol".to_owned())),
    }
}

async fn serve_reversed(
    channel: Channel,
    node: NodeId,
    stream: TlsStream<TcpStream>,
    end: &CancellationToken,
) -> Result<(), ChannelError> {
    let session = Session::open(node, stream, end).await?;
    let _end = session.link.ended.clone().drop_guard();
    if !session.hello.protocols.contains(&PROTOCOL) {
        return Err(ChannelError::Protocol(
            "the agent speaks no protocol version that this control plane does".to_owned(),
        ));
    }
    match session.hello.connection.clone() {
        ConnectionKind::Bulk { request } => {
            let ended = session.link.ended.clone();
            channel.shared.deliver_bulk(&request, session);
            ended.cancelled().await;
            Ok(())
        }
        ConnectionKind::Control => serve_control(channel, session).await,
    }
}

async fn serve_control(channel: Channel, mut session: Session) -> Result<(), ChannelError> {
    let (shared, node) = (&channel.shared, session.node);
    if channel.is_cloned(&session).await {
        shared.backend.cloned(node, &session.hello).await;
        return Err(ChannelError::Lost("another live agent uses this identity".to_owned()));
    }
    let (version, signed_set) = shared.backend.key_set().await;
    give_keys(&session.link, &signed_set).await?;
    session.hello.key_set_version = version;
    give_endpoints(&session.link, shared.backend.endpoints().await).await;
    shared.install(session.clone());
    shared.liveness.connected(node);
    let recorded = shared.backend.connected(node, session.connection, &session.hello).await;
    if let Err(refused) = recorded {
        shared.remove(&session);
        return Err(ChannelError::Lost(refused.message));
    }
    let units = shared.backend.observed_units(node).await;
    if let Err(error) = observe(&channel, session.clone(), units).await {
        tracing::debug!(%node, %error, "the node takes no observation yet");
    }
    session.link.ended.cancelled().await;
    shared.remove(&session);
    if shared.backend.disconnected(node, session.connection).await {
        shared.liveness.await_return(node);
    }
    Ok(())
}
