//! An app's calls to its own cluster: the one part of an app that is not pure, behind a trait that names no cluster technology.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_model::{MemberId, NodeId, SecretId, Timestamp, WorkloadId};
use gpuaas_planner::WorkloadView;
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

use crate::{engine::Engine, held::HeldTunnel, ownership, secrets::SealedSecrets};

/// A byte stream to a port of a node, through its channel.
pub trait Tunnel: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Tunnel for T {}

/// Opens tunnels to allowlisted ports of the nodes of one workload, at the node's own address.
#[async_trait]
pub trait Tunnels: Send + Sync {
    /// A stream to `port` of `node`. Fails where the workload's project does not hold the node at that moment, and breaks as soon as it does no
    /// more.
    async fn open(&self, node: NodeId, port: u16) -> std::io::Result<Box<dyn Tunnel>>;
}

/// Opens sealed secrets of one workload.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The plain bytes; wiped when dropped. Fails when the secret is not there yet or cannot be unsealed.
    async fn open(&self, id: SecretId) -> Result<Zeroizing<Vec<u8>>, String>;
}

/// Takes what a running call waits for; shown as the step's detail.
pub type ProgressSink = Arc<dyn Fn(String) + Send + Sync>;

/// All that a call may use.
#[derive(Clone)]
pub struct CallContext {
    /// The workload as its rows say.
    pub workload: WorkloadView,
    /// Whom the step is for.
    pub member: Option<MemberId>,
    /// Opens sealed secrets of this workload.
    pub secrets: Arc<dyn Secrets>,
    /// Opens tunnels.
    pub tunnels: Arc<dyn Tunnels>,
    /// Takes progress.
    pub progress: ProgressSink,
    /// The present moment of the caller's clock.
    pub now: Timestamp,
    /// When the caller gives up; the call is dropped then.
    pub deadline: Timestamp,
}

/// Longest life of a direct credential, in seconds: thirty days.
pub const DIRECT_SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// Longest life of a break-glass credential, in seconds: it has every right, so it ends within the hour.
pub const BREAK_GLASS_SECONDS_MAX: u64 = 3_600;

/// What kind of access to a cluster is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRequest {
    /// Names the ServiceAccount: lower-case, unique per delivery, a valid object name.
    pub name: String,
    /// `direct` or `break-glass`.
    pub kind: String,
    /// One of the app's roles, for example `cluster-admin`.
    pub role: String,
    /// Wanted life of the credential, in seconds.
    pub ttl_seconds: u64,
    /// Who asked, for the labels of what is made.
    pub requested_by: String,
}

/// A delivered credential.
pub struct Delivered {
    /// The file as the client gets it. Never stored, never logged.
    pub kubeconfig: Zeroizing<String>,
    /// What revoking deletes.
    pub service_account: String,
    /// When it ends by itself.
    pub expires_at: Timestamp,
}

/// An app's effects. Every call is idempotent: repeating it after a crash ends in the same state.
#[async_trait]
pub trait AppEffects: Send + Sync {
    /// Makes the named call and returns what it saw. Waiting is by watching; the deadline is the caller's.
    async fn call(&self, call: &str, context: CallContext) -> Result<Value, TaskFailure>;

    /// Makes a credential.
    async fn deliver_access(&self, request: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure>;

    /// Withdraws it; withdrawing what is gone succeeds.
    async fn revoke_access(&self, service_account: &str, context: CallContext) -> Result<(), TaskFailure>;
}

impl CallContext {
    /// What calls on behalf of that workload may use: its own secrets, and tunnels to nodes that it holds.
    pub(crate) fn of(engine: &Arc<Engine>, workload: WorkloadView, deadline: Timestamp) -> Self {
        let of = workload.id;
        Self {
            workload,
            member: None,
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
        let held = self.engine.while_held(&access).await.map_err(std::io::Error::other)?;
        let tunnel = self.engine.tunnels().open(&access, port).await?;
        Ok(Box::new(HeldTunnel::new(tunnel, held)))
    }
}
