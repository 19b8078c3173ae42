//! `rke2 server` on a booted machine: containerd, kubelet, then etcd, the apiserver and the others as static pods, each when what it needs
//! answers; the network and DNS as manifests.

use camino::Utf8PathBuf;

use super::cluster::Cluster;
use super::node::{self, Node};
use super::{apply, manifests, registration, static_pods};
use crate::control_plane::{self, ControlPlane};
use crate::faults::{Fault, Faults};
use crate::identity::Identity;
use crate::server::{self, Opened, etcd_healthy, until};
use crate::server_nodes::{self, OwnNode};
use crate::settings::Settings;
use crate::{agent, log, server_files};

/// Runs until the process is told to stop; an error is fatal.
pub(crate) async fn run(settings: Settings, faults: Faults) -> anyhow::Result<()> {
    let node = Node::prepare(&settings)?;
    let server = Opened::open(&settings).await?;
    if faults.has(Fault::KubeletExited) {
        agent::kubelet_exits_for_ever().await;
    }
    // Written anew when the apiserver is up, as by the real program.
    static_pods::remove(&settings.paths, "kube-proxy")?;
    let containerd = node.start_containerd(&settings).await?;
    let work = bring_up(&settings, &faults, &server, &node);
    tokio::select! {
        result = work => result?,
        error = containerd.ended() => return Err(error),
    }
    Ok(())
}

async fn bring_up(settings: &Settings, faults: &Faults, server: &Opened, node: &Node) -> anyhow::Result<()> {
    let cluster = Cluster::of(settings);
    let identity = server::own_identity(settings, &server.files)?;
    node::write_credentials(&settings.paths, &identity, &server.files.proxy)?;
    let plane = control_plane::layout(settings, &node.bin);
    if !faults.has(Fault::EtcdNeverReady) {
        static_pods::write(settings, &plane.etcd)?;
    }
    node.start_kubelet(settings, &cluster)?;
    start_core(settings, faults, server, &plane).await?;
    for component in [&plane.controller_manager, &plane.scheduler] {
        static_pods::write(settings, component)?;
    }
    static_pods::write_proxy(settings, &cluster)?;
    server::check_own_password(settings, server).await?;
    server.core_ready.send_replace(true);
    tokio::spawn(server_nodes::follow(server.admin.clone(), OwnNode::new(settings)));
    if !faults.has(Fault::NeverReady) {
        server::say_ready(settings)?;
    }
    finish(settings, faults, node, &cluster, &identity).await
}

async fn start_core(settings: &Settings, faults: &Faults, server: &Opened, plane: &ControlPlane) -> anyhow::Result<()> {
    log::info!("Managed etcd cluster initializing");
    if faults.has(Fault::EtcdNeverReady) {
        server::etcd_is_waited_for_for_ever().await;
    }
    server::say_how_to_join(settings);
    server_files::write_kubeconfig(settings, &server.files)?;
    until("Waiting for etcd server to become available", || etcd_healthy(settings)).await;
    log::info!("ETCD server is now running");
    static_pods::write(settings, &plane.apiserver)?;
    until("Waiting for API server to become available", || async { server.admin.get("/readyz").await.is_ok() }).await;
    log::info!("Kube API server is now running");
    Ok(())
}

/// Gives the cluster its network and DNS, and the server's own KubeNode what belongs on it; then looks after both.
async fn finish(
    settings: &Settings,
    faults: &Faults,
    node: &Node,
    cluster: &Cluster,
    identity: &Identity,
) -> anyhow::Result<()> {
    let folder: Utf8PathBuf = settings.paths.data("server/manifests");
    manifests::lay_down(settings, cluster, &node.bin, faults.has(Fault::CniNotInitialized))?;
    let applying = async {
        apply::keep_applied(folder, node.bin.join("kubectl"), settings.paths.cred("admin.kubeconfig")).await;
        Ok(())
    };
    // The first never ends, so a failure of the second is all that can come of this.
    tokio::try_join!(applying, registration::complete(settings, identity)).map(drop)
}
