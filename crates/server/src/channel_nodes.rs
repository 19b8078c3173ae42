//! Implements the engine's access to nodes with the node channel of this process.

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use gpuaas_channel::{Channel, ChannelError};
use gpuaas_engine::{
    effects::Tunnel,
    ownership::NodeAccess,
    port::{DispatchError, NodeTunnels, Nodes},
};
use gpuaas_model::{NodeId, TaskId};
use gpuaas_wire::session::TaskLine;

pub(crate) struct ChannelNodes(pub(crate) Channel);
pub(crate) struct ChannelTunnels(pub(crate) Channel);

#[async_trait]
impl Nodes for ChannelNodes {
    async fn dispatch(
        &self,
        access: &NodeAccess,
        envelope: &str,
    ) -> Result<BoxStream<'static, Result<TaskLine, DispatchError>>, DispatchError> {
        let lines = self.0.dispatch(access.node(), envelope).await.map_err(dispatch_error)?;
        Ok(lines.map(|line| line.map_err(dispatch_error)).boxed())
    }

    async fn cancel(&self, node: NodeId, task: TaskId) {
        self.log_failure("cancellation", node, self.0.cancel(node, task)).await;
    }

    async fn observe(&self, node: NodeId, units: Vec<String>) {
        self.log_failure("observed units", node, self.0.observe(node, units)).await;
    }

    async fn send_keys(&self, node: NodeId, signed_set: &str) -> bool {
        let given = self.0.send_keys(node, signed_set).await;
        given.inspect_err(|error| tracing::debug!(%node, %error, "the node did not accept the keys")).is_ok()
    }

    fn recheck(&self, node: NodeId) {
        self.0.recheck(node);
    }

    fn recheck_all(&self) {
        self.0.recheck_all();
    }

    fn expect_reconnect(&self, node: NodeId) {
        self.0.expect_reconnect(node);
    }

    fn broadcast_endpoints(&self) {
        self.0.broadcast_endpoints();
    }

    fn close_channels(&self) {
        self.0.close_channels();
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
        Ok(Box::new(self.0.open_tunnel(access.node(), port).await.map_err(std::io::Error::other)?))
    }
}

fn dispatch_error(error: ChannelError) -> DispatchError {
    match error {
        ChannelError::NotConnected => DispatchError::NotConnected,
        other => DispatchError::Lost(other.to_string()),
    }
}
