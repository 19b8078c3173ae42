//! Follows the KubeNodes of a workload's cluster.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use gpuaas_app_rke2::{ObservedCluster, ObservedKubeNode, compared_labels};
use gpuaas_engine::effects::{CallContext, Observations};
use gpuaas_kube::NodeFollower;
use gpuaas_model::Code;
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};

use crate::{
    admission::Queues,
    connections::{connect, server},
    failure,
    observe::observed,
};

/// Pause before the kubeconfig is read again after a failure; nothing announces that it can be read.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A cluster that is followed.
struct Followed {
    queues: Queues,
    context: CallContext,
    follower: Option<NodeFollower<ObservedKubeNode>>,
    /// True after the kubeconfig could not be read.
    is_failed: bool,
}

/// Yields the KubeNodes at first and after each change, and every failure to read them.
pub(crate) fn follow(queues: Queues, context: CallContext) -> Observations {
    let followed = Followed { queues, context, follower: None, is_failed: false };
    stream::unfold(followed, |mut followed| async move {
        let observed = followed.next().await;
        Some((observed, followed))
    })
    .boxed()
}

impl Followed {
    async fn next(&mut self) -> Result<Value, TaskFailure> {
        let follower = match &mut self.follower {
            Some(follower) => follower,
            none => {
                if self.is_failed {
                    tokio::time::sleep(CONNECT_AGAIN_AFTER).await;
                }
                let begun = begin(&self.queues, &self.context).await;
                none.insert(begun.map_err(|failure| unfollowable(failure, &mut self.is_failed, &self.context))?)
            }
        };
        match follower.next().await {
            Ok(kube_nodes) => Ok(json!(ObservedCluster { kube_nodes })),
            Err(error) => Err(failure::of(error, &server(&self.context)?.machine)),
        }
    }
}

/// Returns a failure that says nothing about the cluster: it was not called.
fn unfollowable(failure: TaskFailure, is_known: &mut bool, context: &CallContext) -> TaskFailure {
    if !std::mem::replace(is_known, true) {
        let (workload, why) = (&context.workload.name, &failure.message);
        tracing::warn!(%workload, %why, "the cluster cannot be followed yet; trying again");
    }
    TaskFailure { code: Code::Unavailable, ..failure }
}

/// Opens the kubeconfig; makes no call yet.
async fn begin(queues: &Queues, context: &CallContext) -> Result<NodeFollower<ObservedKubeNode>, TaskFailure> {
    let admission = queues.of_follower(context.workload.project, context.workload.id);
    let cluster = connect(context, admission).await?;
    let compared = compared_labels(&context.workload);
    Ok(NodeFollower::new(cluster, move |node| observed(node, &compared)))
}
