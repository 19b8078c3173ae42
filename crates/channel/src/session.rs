//! One connection of a node, with what the agent said of itself on it.

use std::time::Duration;

use gpuaas_model::NodeId;
use gpuaas_wire::session::{Hello, path};
use tokio::io::{AsyncRead, AsyncWrite};
use uuid::Uuid;

use crate::{channel::ChannelError, link::Link};

/// Longest time for the first answer of a new connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection on which the agent answers.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) node: NodeId,
    /// Names this very connection.
    pub(crate) connection: Uuid,
    pub(crate) hello: Hello,
    pub(crate) link: Link,
}

impl Session {
    /// Turns the roles of a fresh connection around and asks who is there.
    pub(crate) async fn open<S>(node: NodeId, stream: S) -> Result<Self, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let link = Link::open(stream).await?;
        let guard = link.ended.clone().drop_guard();
        let hello = tokio::time::timeout(HELLO_TIMEOUT, link.get::<Hello>(path::HELLO));
        let hello = hello.await.map_err(|_| ChannelError::Lost("it said no hello".to_owned()))??;
        guard.disarm();
        Ok(Self { node, connection: Uuid::new_v4(), hello, link })
    }
}
