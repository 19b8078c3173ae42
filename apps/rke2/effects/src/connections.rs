//! Keeps one connection per workload between calls.
//!
//! A kept connection is used only while its inputs are the same: the server's node and address, and the admin kubeconfig's digest. It is
//! dropped when a call finds it broken, and its tunnel closes as soon as the workload no longer has the node.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, MutexGuard, PoisonError},
};

use gpuaas_app_rke2::names;
use gpuaas_engine::effects::{CallContext, Tunnels};
use gpuaas_kube::{ByteStream, Cluster, Endpoint, KubeError, Kubeconfig};
use gpuaas_model::{Code, NodeId, WorkloadId};
use gpuaas_planner::{MemberView, SecretView};
use gpuaas_wire::task::TaskFailure;

use crate::{Rke2Effects, admission::WorkloadAdmission, failure};

/// The apiserver's port on every RKE2 server.
const APISERVER_PORT: u16 = 6443;
/// Most workloads with a kept connection; beyond that, each new one replaces another. Idle connections close by themselves.
const CACHED_MAX: usize = 256;

/// Connections by workload.
pub(crate) type Connections = HashMap<WorkloadId, CachedConnection>;

/// A connection and its inputs.
pub(crate) struct CachedConnection {
    node: NodeId,
    address: String,
    kubeconfig_sha256: String,
    cluster: Cluster,
}

impl CachedConnection {
    fn matches(&self, server: &MemberView, kubeconfig_sha256: &str) -> bool {
        Some(self.node) == server.place.node()
            && self.address == server.machine.address
            && self.kubeconfig_sha256 == kubeconfig_sha256
    }
}

impl Rke2Effects {
    /// Runs `work` on the workload's cluster; if a kept connection turns out to be broken, runs it once more over a new one.
    pub(crate) async fn on_cluster<T, W>(
        &self,
        context: &CallContext,
        work: impl Fn(Cluster) -> W,
    ) -> Result<T, TaskFailure>
    where
        W: Future<Output = Result<T, KubeError>>,
    {
        let machine = &server(context)?.machine;
        let (cluster, is_cached) = self.cluster(context).await?;
        let mut outcome = work(cluster).await;
        if let Err(error) = &outcome
            && error.is_transport()
        {
            self.lock().remove(&context.workload.id);
            if is_cached {
                tracing::debug!(workload = %context.workload.name, %error, "a cached connection broke; opening a new one");
                outcome = work(self.cluster(context).await?.0).await;
            }
        }
        outcome.map_err(|error| failure::of(error, machine))
    }

    /// Returns the workload's cluster, and whether its connection was kept from an earlier call.
    async fn cluster(&self, context: &CallContext) -> Result<(Cluster, bool), TaskFailure> {
        let (server, node, admin) = target(context)?;
        if let Some(cached) = self.lock().get(&context.workload.id)
            && cached.matches(server, &admin.sha256)
        {
            return Ok((cached.cluster.clone(), true));
        }
        let admission = self.queues.of(context.workload.project, context.workload.id);
        let cluster = connect(context, admission).await?;
        let cached = CachedConnection {
            node,
            address: server.machine.address.clone(),
            kubeconfig_sha256: admin.sha256.clone(),
            cluster: cluster.clone(),
        };
        self.cache(context.workload.id, cached);
        Ok((cluster, false))
    }

    fn cache(&self, workload: WorkloadId, cached: CachedConnection) {
        let mut connections = self.lock();
        if connections.len() >= CACHED_MAX
            && !connections.contains_key(&workload)
            && let Some(any) = connections.keys().next().copied()
        {
            connections.remove(&any);
        }
        connections.insert(workload, cached);
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a client of the workload's cluster with connections of its own. Opens none yet.
pub(crate) async fn connect(context: &CallContext, admission: WorkloadAdmission) -> Result<Cluster, TaskFailure> {
    let (server, node, admin) = target(context)?;
    let bytes =
        context.secrets.open(admin.id).await.map_err(|why| no_kubeconfig(&format!("cannot be opened: {why}")))?;
    let kubeconfig = Kubeconfig::parse(&bytes).map_err(|error| failure::of(error.into(), &server.machine))?;
    let endpoint = Endpoint { host: server.machine.address.clone(), port: APISERVER_PORT };
    let connector = Arc::new(connector(context.tunnels.clone(), node));
    Cluster::with_admission(&kubeconfig, endpoint, connector, Arc::new(admission))
        .map_err(|error| failure::of(error, &server.machine))
}

/// Returns the server, its node, and the kubeconfig for its apiserver.
fn target(context: &CallContext) -> Result<(&MemberView, NodeId, &SecretView), TaskFailure> {
    let server = server(context)?;
    let node = server.place.node().ok_or_else(|| {
        TaskFailure::new(Code::ClusterUnreachable, format!("no tunnel leads to {}", server.machine.name))
    })?;
    let admin = context.workload.secrets.get(names::ADMIN_KUBECONFIG);
    Ok((server, node, admin.ok_or_else(|| no_kubeconfig("has not been read yet"))?))
}

/// Returns the first present server of the workload: its apiserver is the cluster's.
pub(crate) fn server(context: &CallContext) -> Result<&MemberView, TaskFailure> {
    let server = context.workload.component(names::SERVER).find(|member| member.is_present());
    // A decommission removes the server last, and its apiserver answers until then.
    let server = server.or_else(|| context.workload.component(names::SERVER).next());
    let server = server.ok_or_else(|| TaskFailure::new(Code::ClusterUnreachable, "the workload has no server"))?;
    if server.machine.address.is_empty() {
        let message = format!("node {} has not reported its address yet", server.machine.name);
        return Err(TaskFailure::new(Code::ClusterUnreachable, message));
    }
    Ok(server)
}

fn no_kubeconfig(why: &str) -> TaskFailure {
    TaskFailure::new(Code::ClusterNotReady, format!("the cluster's admin kubeconfig {why}"))
}

fn connector(tunnels: Arc<dyn Tunnels>, node: NodeId) -> impl gpuaas_kube::Connector {
    move || {
        let tunnels = tunnels.clone();
        async move {
            let tunnel = tunnels.open(node, APISERVER_PORT).await?;
            Ok::<Box<dyn ByteStream>, io::Error>(Box::new(tunnel))
        }
    }
}
