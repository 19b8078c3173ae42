//! An app's calls to its own cluster: the only impure part of an app, behind a trait independent of any cluster technology.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream, stream::BoxStream};
use gpuaas_model::{NodeId, SecretId, Timestamp};
use gpuaas_planner::{ClusterCall, WorkloadView};
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

/// A byte stream to a port of a node, through its channel.
pub trait Tunnel: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Tunnel for T {}

/// Opens tunnels to allowlisted ports of the nodes of one workload, at the node's own address.
#[async_trait]
pub trait Tunnels: Send + Sync {
    /// Opens a stream to `port` of `node`. Fails if the workload's project does not hold the node at that moment, and breaks as soon as it
    /// stops holding it.
    async fn open(&self, node: NodeId, port: u16) -> std::io::Result<Box<dyn Tunnel>>;
}

/// Opens sealed secrets of one workload.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// Returns the plaintext, wiped when dropped. Fails if the secret does not exist yet or cannot be unsealed.
    async fn open(&self, id: SecretId) -> Result<Zeroizing<Vec<u8>>, String>;
}

/// Receives what a running call waits for; shown as the step's detail.
pub type ProgressSink = Arc<dyn Fn(String) + Send + Sync>;

/// The context of a call.
#[derive(Clone)]
pub struct CallContext {
    /// The workload, from its rows.
    pub workload: WorkloadView,
    /// Opens sealed secrets of this workload.
    pub secrets: Arc<dyn Secrets>,
    /// Opens tunnels to the nodes of this workload.
    pub tunnels: Arc<dyn Tunnels>,
    /// Receives progress texts.
    pub progress: ProgressSink,
    /// The present time of the caller's clock.
    pub now: Timestamp,
    /// The time limit of the caller, who then drops the call.
    pub deadline: Timestamp,
}

/// Longest lifetime of a direct credential, in seconds: 30 days.
pub const DIRECT_SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// Longest lifetime of a break-glass credential, in seconds: one hour, because it has every permission.
pub const BREAK_GLASS_SECONDS_MAX: u64 = 3_600;

/// The requested access to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRequest {
    /// Name of the ServiceAccount: lower-case, unique per delivery, a valid object name.
    pub name: String,
    /// `direct` or `break-glass`.
    pub kind: String,
    /// One of the roles that `commands::access` offers for the kind, for example `cluster-admin`.
    pub role: String,
    /// Requested lifetime of the credential, in seconds.
    pub ttl_seconds: u64,
    /// The requester, for labels of the created objects.
    pub requested_by: String,
}

/// A delivered credential.
pub struct Delivered {
    /// The kubeconfig that the client gets. Never stored, never logged.
    pub kubeconfig: Zeroizing<String>,
    /// The ServiceAccount that a revocation deletes.
    pub service_account: String,
    /// Expiry of the credential.
    pub expires_at: Timestamp,
}

/// What a followed cluster shows, in the form that `App::judge_cluster` reads, or why it cannot be asked.
pub type Observations = BoxStream<'static, Result<Value, TaskFailure>>;

/// An app's effects. Every call is idempotent: repeating it after a crash ends in the same state.
#[async_trait]
pub trait AppEffects: Send + Sync {
    /// Makes a call of a step and returns its observation. Waits by watching; the caller enforces the deadline. Fails with `task_unknown`
    /// if the app has no such call.
    async fn call(&self, call: ClusterCall, context: CallContext) -> Result<Value, TaskFailure>;

    /// Creates a credential.
    async fn deliver_access(&self, request: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure>;

    /// Revokes a credential; succeeds if it no longer exists.
    async fn revoke_access(&self, service_account: &str, context: CallContext) -> Result<(), TaskFailure>;

    /// Observes the cluster as it is now, without waiting for anything and without changing it. The app compares it (`App::compare`).
    async fn observe(&self, context: CallContext) -> Result<Value, TaskFailure>;

    /// Follows the cluster until the stream is dropped. Yields what the cluster shows at first, again after each change, a failure whenever
    /// it cannot be asked, and what it shows when it answers again. Uses watches for everything that can be watched.
    ///
    /// The cluster belongs to a tenant, so the stream bounds what it keeps of it and how often it yields, whatever the cluster does, and
    /// works only while it is polled. The deadline of the context does not apply. By default nothing is ever yielded.
    fn follow(&self, _context: CallContext) -> Observations {
        stream::pending().boxed()
    }
}
