//! What a call to a cluster may use: the secrets of its own workload, and tunnels to nodes that the workload holds.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_model::{NodeId, Timestamp, WorkloadId};
use gpuaas_planner::WorkloadView;

use crate::{
    effects::{CallContext, Tunnel, Tunnels},
    engine::Engine,
    open_access::tunnel::GuardedTunnel,
    ownership,
    secrets::SealedSecrets,
};

impl CallContext {
    /// Creates the context for calls of one workload: its own secrets, and tunnels to nodes that it holds.
    pub(crate) fn of(engine: &Arc<Engine>, workload: WorkloadView, deadline: Timestamp) -> Self {
        let of = workload.id;
        Self {
            workload,
            secrets: Arc::new(SealedSecrets::of(engine.clone(), of)),
            tunnels: Arc::new(WorkloadTunnels { engine: engine.clone(), workload: of }),
            progress: Arc::new(|_| {}),
            now: engine.ports().clock.now(),
            deadline,
        }
    }
}

/// Tunnels to the nodes that one workload holds.
struct WorkloadTunnels {
    engine: Arc<Engine>,
    workload: WorkloadId,
}

#[async_trait]
impl Tunnels for WorkloadTunnels {
    async fn open(&self, node: NodeId, port: u16) -> std::io::Result<Box<dyn Tunnel>> {
        let decided = async {
            let mut reader = self.engine.store().read().await?;
            ownership::for_workload_on(&mut reader, self.workload, node).await
        };
        let access = decided.await.map_err(std::io::Error::other)?;
        let held = self.engine.guard_access(&access).await.map_err(std::io::Error::other)?;
        let tunnel = self.engine.tunnels().open(&access, port).await?;
        Ok(Box::new(GuardedTunnel::new(tunnel, held)))
    }
}
