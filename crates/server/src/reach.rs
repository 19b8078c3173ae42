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
pub(crate) struct LateChannel(OnceLock<Channel>);

impl LateChannel {
    pub(crate) fn set(&self, channel: Channel) {
        // Set once, at the start of this process.
        let _ = self.0.set(channel);
    }

    pub(crate) fn get(&self) -> Result<&Channel, ChannelError> {
        self.0.get().ok_or(ChannelError::NotConnected)
    }
}

pub(crate) struct ChannelNodes(pub(crate) Arc<LateChannel>);
pub(crate) struct ChannelTunnels(pub(crate) Arc<LateChannel>);

#[async_trait]
impl Nodes for ChannelNodes {
    async fn dispatch(
        &self,
        access: &NodeAccess,
        envelope: &str,
    ) -> Result<BoxStream<'static, Result<TaskUpdate, DispatchError>>, DispatchError> {
        let lines = self.0.get().map_err(lost)?.dispatch(access.node(), envelope).await.map_err(lost)?;
        Ok(lines.map(|line| line.map(update).map_err(lost)).boxed())
    }

    async fn cancel(&self, node: NodeId, task: TaskId) {
        self.told("cancelled", node, async { self.0.get()?.cancel(node, task).await }).await;
    }

    async fn observe(&self, node: NodeId, units: Vec<String>) {
        self.told("asked for reports", node, async { self.0.get()?.observe(node, units).await }).await;
    }

    async fn give_keys(&self, node: NodeId, signed_set: &str) -> bool {
        let given = async { self.0.get()?.set_keys(node, signed_set).await };
        given.await.inspect_err(|error| tracing::debug!(%node, %error, "the node takes no keys")).is_ok()
    }

    fn readmit(&self, node: NodeId) {
        if let Ok(channel) = self.0.get() {
            channel.readmit(node);
        }
    }

    fn readmit_all(&self) {
        if let Ok(channel) = self.0.get() {
            channel.readmit_all();
        }
    }

    fn expect_back(&self, node: NodeId) {
        if let Ok(channel) = self.0.get() {
            channel.await_return(node);
        }
    }

    async fn spread_endpoints(&self) {
        if let Ok(channel) = self.0.get() {
            channel.spread_endpoints().await;
        }
    }

    fn release_all(&self) {
        if let Ok(channel) = self.0.get() {
            channel.disconnect_all();
        }
    }
}

impl ChannelNodes {
    /// Logs a failed notification. The node catches up later: the response to its hello lists the units to report, and a cancellation is sent
    /// again with its task.
    async fn told(&self, what: &str, node: NodeId, telling: impl Future<Output = Result<(), ChannelError>>) {
        if let Err(error) = telling.await {
            tracing::debug!(%node, what, %error, "the node could not be told");
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

fn lost(error: ChannelError) -> DispatchError {
    match error {
        ChannelError::NotConnected => DispatchError::NotConnected,
        other => DispatchError::Lost(other.to_string()),
    }
}
