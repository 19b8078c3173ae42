//! Implements the engine's access to nodes with the node channel of this process.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use gpuaas_channel::{Channel, ChannelError};
use gpuaas_engine::{
    effects::Tunnel,
    ownership::NodeAccess,
    port::{DispatchError, NodeTunnels, Nodes, TaskUpdate},
};
use gpuaas_model::{NodeId, TaskId};
use gpuaas_wire::session::TaskLine;

/// The node channel once it exists. Engine and channel need each other to start, so the engine gets this placeholder.
#[derive(Default)]
pub(crate) struct ChannelSlot(OnceLock<Channel>);

impl ChannelSlot {
    pub(crate) fn set(&self, channel: Channel) {
        // Set once, at the start of this process.
        let _ = self.0.set(channel);
    }

    pub(crate) fn get(&self) -> Result<&Channel, ChannelError> {
        self.0.get().ok_or(ChannelError::NotConnected)
    }
}

pub(crate) struct ChannelNodes(pub(crate) Arc<ChannelSlot>);
pub(crate) struct ChannelTunnels(pub(crate) Arc<ChannelSlot>);

#[async_trait]
impl Nodes for ChannelNodes {
    async fn dispatch(
        &self,
        access: &NodeAccess,
        envelope: &str,
    ) -> Result<BoxStream<'static, Result<TaskUpdate, DispatchError>>, DispatchError> {
        let lines =
            self.0.get().map_err(dispatch_error)?.dispatch(access.node(), envelope).await.map_err(dispatch_error)?;
        Ok(lines.map(|line| line.map(update).map_err(dispatch_error)).boxed())
    }

    async fn cancel(&self, node: NodeId, task: TaskId) {
        self.log_failure("cancellation", node, async { self.0.get()?.cancel(node, task).await }).await;
    }

    async fn observe(&self, node: NodeId, units: Vec<String>) {
        self.log_failure("observed units", node, async { self.0.get()?.observe(node, units).await }).await;
    }

    async fn send_keys(&self, node: NodeId, signed_set: &str) -> bool {
        let given = async { self.0.get()?.set_keys(node, signed_set).await };
        given.await.inspect_err(|error| tracing::debug!(%node, %error, "the node did not accept the keys")).is_ok()
    }

    fn recheck(&self, node: NodeId) {
        if let Ok(channel) = self.0.get() {
            channel.readmit(node);
        }
    }

    fn recheck_all(&self) {
        if let Ok(channel) = self.0.get() {
            channel.readmit_all();
        }
    }

    fn expect_reconnect(&self, node: NodeId) {
        if let Ok(channel) = self.0.get() {
            channel.await_return(node);
        }
    }

    async fn broadcast_endpoints(&self) {
        if let Ok(channel) = self.0.get() {
            channel.broadcast_endpoints().await;
        }
    }

    fn close_channels(&self) {
        if let Ok(channel) = self.0.get() {
            channel.disconnect_all();
        }
    }
}

impl ChannelNodes {
    /// Logs a failed notification. The node catches up later: the response to its hello lists the units to report, and a cancellation is sent
    /// again with its task.
    async fn log_failure(
        &self,
        what: &str,
        node: NodeId,
        notification: impl Future<Output = Result<(), ChannelError>>,
    ) {
        if let Err(error) = notification.await {
            tracing::debug!(%node, what, %error, "the node could not be notified");
        }
    }
}

#[async_trait]
impl NodeTunnels for ChannelTunnels {
    async fn open(&self, access: &NodeAccess, port: u16) -> std::io::Result<Box<dyn Tunnel>> {
        let channel = self.0.get().map_err(std::io::Error::other)?;
        Ok(Box::new(channel.open_tunnel(access.node(), port).await.map_err(std::io::Error::other)?))
    }
}

fn update(line: TaskLine) -> TaskUpdate {
    match line {
        TaskLine::Accepted => TaskUpdate::Accepted,
        TaskLine::Progress(progress) => TaskUpdate::Progress(progress),
        TaskLine::Ended(outcome) => TaskUpdate::Ended(outcome),
        TaskLine::Interrupted => TaskUpdate::Interrupted,
    }
}

fn dispatch_error(error: ChannelError) -> DispatchError {
    match error {
        ChannelError::NotConnected => DispatchError::NotConnected,
        other => DispatchError::Lost(other.to_string()),
    }
}
