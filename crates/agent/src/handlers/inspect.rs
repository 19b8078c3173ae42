//! `host.inspect`: tells what the node is.

use gpuaas_wire::task::{HostFacts, Inspect, TaskFailure};

use crate::context::{Context, host_failed};

/// Looks.
pub(crate) async fn run(_task: Inspect, context: Context) -> Result<HostFacts, TaskFailure> {
    context.host.facts().await.map_err(host_failed)
}
