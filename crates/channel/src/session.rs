//! One connection of a node, with the agent's hello.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::{EnrolledNode, NodeId};
use gpuaas_wire::session::{Hello, path};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    backend::ChannelBackend,
    error::ChannelError,
    link::{Link, StreamWindow},
};

/// Longest time until a new connection has answered the hello request.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection on which the agent is the HTTP server.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) node: NodeId,
    /// The enrollment epoch of the connection's certificate.
    pub(crate) epoch: u64,
    /// Unique id of this connection.
    pub(crate) connection: Uuid,
    pub(crate) hello: Hello,
    pub(crate) link: Link,
    /// Records the node's reports.
    pub(crate) backend: Arc<dyn ChannelBackend>,
    /// Cancels the reading of the unit reports that were requested last.
    observed: Arc<Mutex<CancellationToken>>,
}

impl Session {
    /// Reverses the roles of a new connection, so that the agent is the server, and requests its hello. `end` ends the connection.
    pub(crate) async fn open<S>(
        EnrolledNode { node, epoch }: EnrolledNode,
        stream: S,
        end: &CancellationToken,
        backend: Arc<dyn ChannelBackend>,
    ) -> Result<Self, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let link = Link::open(stream, StreamWindow::Large, end.child_token()).await?;
        let guard = link.ended.clone().drop_guard();
        let hello = tokio::time::timeout(HELLO_TIMEOUT, link.get::<Hello>(path::HELLO));
        let hello = hello.await.map_err(|_| ChannelError::Lost("the agent sent no hello in time".to_owned()))??;
        guard.disarm();
        Ok(Self { node, epoch, connection: Uuid::new_v4(), hello, link, backend, observed: Arc::default() })
    }

    /// Returns the node with the connection's enrollment epoch.
    pub(crate) fn enrolled(&self) -> EnrolledNode {
        EnrolledNode { node: self.node, epoch: self.epoch }
    }

    /// Cancels the reading of earlier reports and returns the token that cancels the new reading.
    pub(crate) fn restart_observation(&self) -> CancellationToken {
        let reading = self.link.ended.child_token();
        let before =
            std::mem::replace(&mut *self.observed.lock().unwrap_or_else(PoisonError::into_inner), reading.clone());
        before.cancel();
        reading
    }
}
