//! RKE2's calls to its own cluster: what the adapter's plans name, made through the tunnel to the server's apiserver.
//!
//! Guarantees: the distribution's admin kubeconfig is opened for a call, used, and leaves neither this crate's memory cache (which
//! holds parsed credentials of live connections) nor the sealed store; results, progress and failures carry no credential. Every
//! call is idempotent. A connection that broke is replaced, and the call repeated once, before a failure is reported. Of one workload one
//! request is under way at a time, of one project a share, and of all few: a cluster that is slow or hostile holds up its own tenant alone.
//!
//! Deliberately absent: when a call is made and what its failure means (`app-rke2`), and how Kubernetes is spoken (`kube`).

mod access;
mod admission;
mod call;
mod connections;
mod failure;

use std::sync::Mutex;

use async_trait::async_trait;
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Delivered};
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;

use admission::Queues;
use connections::Connections;

/// RKE2's effects.
#[derive(Default)]
pub struct Rke2Effects {
    connections: Mutex<Connections>,
    queues: Queues,
}

impl Rke2Effects {
    /// Without any connection yet.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl AppEffects for Rke2Effects {
    async fn call(&self, call: &str, context: CallContext) -> Result<Value, TaskFailure> {
        self.make(call, &context).await
    }

    async fn deliver_access(&self, request: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure> {
        self.deliver(&request, &context).await
    }

    async fn revoke_access(&self, service_account: &str, context: CallContext) -> Result<(), TaskFailure> {
        self.revoke(service_account, &context).await
    }
}
