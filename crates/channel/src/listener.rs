//! Accepts nodes: handshake, identity, admission, and then what the connection is for.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use gpuaas_model::NodeId;
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
    backend::ChannelBackend,
    channel::{Channel, ChannelError, ChannelOptions, Shared},
    fetch,
    requests::{give_endpoints, give_keys, observe},
    session::Session,
};

/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes under way at once; more wait in the kernel's queue.
const HANDSHAKES_MAX: usize = 256;
/// Connections of all nodes at once.
const CONNECTIONS_MAX: usize = 20_000;

/// Accepts connections until it is stopped.
pub struct ChannelService {
    channel: Channel,
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Channel {
    /// Listens. Nothing is accepted before [`ChannelService::run`].
    pub async fn bind(
        options: &ChannelOptions,
        tls: Arc<ServerConfig>,
        backend: Arc<dyn ChannelBackend>,
    ) -> std::io::Result<(Self, ChannelService)> {
        let listener = TcpListener::bind(options.listen).await?;
        let channel = Self { shared: Shared::new(backend, options) };
        let service = ChannelService { channel: channel.clone(), listener, acceptor: TlsAcceptor::from(tls) };
        Ok((channel, service))
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

    /// Accepts nodes until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
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
            let (Ok(handshake), Ok(connection)) =
                (handshakes.clone().acquire_owned().await, connections.clone().try_acquire_owned())
            else {
                tracing::warn!(%from, "too many node connections; one was dropped");
                continue;
            };
            let (channel, acceptor, stop) = (self.channel.clone(), self.acceptor.clone(), stop.clone());
            tokio::spawn(async move {
                let shaken = handshake_within(acceptor, stream).await;
                drop(handshake);
                let served = async {
                    match shaken {
                        Ok((identity, stream)) => serve(channel, identity, stream).await,
                        Err(error) => Err(error),
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => {}
                    result = served => if let Err(error) = result {
                        tracing::debug!(%from, %error, "a node's connection was turned away or ended");
                    }
                }
                drop(connection);
            });
        }
    }
}

async fn handshake_within(
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> Result<(NodeIdentity, TlsStream<TcpStream>), ChannelError> {
    let lost = |error: &dyn std::fmt::Display| ChannelError::Lost(error.to_string());
    // Tasks are small and must leave at once.
    stream.set_nodelay(true).map_err(|error| lost(&error))?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream))
        .await
        .map_err(|_| ChannelError::Lost("the handshake took too long".to_owned()))?
        .map_err(|error| lost(&error))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or_else(|| ChannelError::Lost("no client certificate".to_owned()))?;
    let identity = NodeIdentity::of_certificate(certificate).map_err(|error| lost(&error))?;
    Ok((identity, stream))
}

async fn serve(channel: Channel, identity: NodeIdentity, stream: TlsStream<TcpStream>) -> Result<(), ChannelError> {
    if let Err(refused) = channel.shared.backend.admit(&identity).await {
        tracing::warn!(node = %identity.node, code = %refused.code, reason = %refused.message, "a node was refused");
        return Err(ChannelError::Lost(refused.message));
    }
    match stream.get_ref().1.alpn_protocol() {
        Some(ALPN_NODE) => serve_reversed(channel, identity, stream).await,
        Some(ALPN_FETCH) => {
            let presented = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|der| der.to_vec());
            fetch::serve(channel.shared.backend.clone(), identity, presented.unwrap_or_default(), stream).await;
            Ok(())
        }
        _ => Err(ChannelError::Protocol("no known application protocol".to_owned())),
    }
}

async fn serve_reversed(
    channel: Channel,
    identity: NodeIdentity,
    stream: TlsStream<TcpStream>,
) -> Result<(), ChannelError> {
    let session = Session::open(identity.node, stream).await?;
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
