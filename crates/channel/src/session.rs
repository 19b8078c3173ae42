//! One connection of a node, with what the agent said of itself on it.

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
    channel::ChannelError,
    link::{Link, Streams},
};

/// Longest time for the first answer of a new connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection on which the agent answers.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) node: NodeId,
    /// The enrollment epoch of the certificate that it came with.
    pub(crate) epoch: u64,
    /// Names this very connection.
    pub(crate) connection: Uuid,
    pub(crate) hello: Hello,
    pub(crate) link: Link,
    /// Ends the reading of unit reports that were asked for.
    observed: Arc<Mutex<CancellationToken>>,
}

impl Session {
    /// Turns the roles of a fresh connection around and asks who is there. `end` ends the connection.
    pub(crate) async fn open<S>(
        EnrolledNode { node, epoch }: EnrolledNode,
        stream: S,
        end: &CancellationToken,
    ) -> Result<Self, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let link = Link::open(stream, Streams::Wide, end.child_token()).await?;
        let guard = link.ended.clone().drop_guard();
        let hello = tokio::time::timeout(HELLO_TIMEOUT, link.get::<Hello>(path::HELLO));
        let hello = hello.await.map_err(|_| ChannelError::Lost("it said no hello".to_owned()))??;
        guard.disarm();
        Ok(Self { node, epoch, connection: Uuid::new_v4(), hello, link, observed: Arc::default() })
    }

    /// The node in the enrollment that it came with.
    pub(crate) fn enrolled(&self) -> EnrolledNode {
        EnrolledNode { node: self.node, epoch: self.epoch }
    }

    /// Ends the reading of earlier reports; the new one ends with what is returned.
    pub(crate) fn observed_anew(&self) -> CancellationToken {
        let anew = self.link.ended.child_token();
        let before =
            std::mem::replace(&mut *self.observed.lock().unwrap_or_else(PoisonError::into_inner), anew.clone());
        before.cancel();
        anew
    }
}
