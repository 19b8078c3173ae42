//! RKE2's calls to its own cluster: the cluster calls of the app's plans, through the tunnel to the server's apiserver.
//!
//! Guarantees: the distribution's admin kubeconfig is opened only for a call, and stays within the sealed store and this crate's memory
//! (which holds the parsed credentials of kept connections); results, progress and failures carry no credential. Every call is idempotent.
//! A broken connection is replaced, and the call repeated once, before a failure is reported. At most one request per workload is in
//! progress at a time, a limited number per project, and a limited number in all: a slow or hostile cluster delays only its own tenant.
//!
//! Deliberately absent: the time of a call and the meaning of its failure (`app-rke2`), and the Kubernetes protocol (`kube`).

mod access;
mod admission;
mod call;
mod connections;
mod failure;
mod follow;
mod observe;

use std::sync::Mutex;

use async_trait::async_trait;
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Delivered, Observations};
use gpuaas_planner::ClusterCall;
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;

use admission::Queues;
use connections::Connections;

/// RKE2's implementation of the engine's cluster calls.
#[derive(Default)]
pub struct Rke2Effects {
    connections: Mutex<Connections>,
    queues: Queues,
}

impl Rke2Effects {
    /// Creates the effects without any connection.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl AppEffects for Rke2Effects {
    async fn call(&self, call: ClusterCall, context: CallContext) -> Result<Value, TaskFailure> {
        self.dispatch(call.parse()?, &context).await
    }

    async fn deliver_access(&self, request: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure> {
        self.deliver(&request, &context).await
    }

    async fn revoke_access(&self, service_account: &str, context: CallContext) -> Result<(), TaskFailure> {
        self.revoke(service_account, &context).await
    }

    async fn observe(&self, context: CallContext) -> Result<Value, TaskFailure> {
        self.observe_cluster(&context).await
    }

    fn follow(&self, context: CallContext) -> Observations {
        follow::follow(self.queues.clone(), context)
    }
}
