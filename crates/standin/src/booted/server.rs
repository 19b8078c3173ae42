//! `rke2 server` on a booted machine: starts containerd and kubelet, then the control plane as static pods, each once its dependency is
//! healthy, and applies network and DNS as manifests.

use std::sync::Arc;

use camino::Utf8PathBuf;

use super::cluster::Cluster;
use super::node::{self, Node};
use super::{apply, manifests, registration, static_pods};
use crate::control_plane::{self, ControlPlane};
use crate::faults::{Faults, Stage};
use crate::identity::Identity;
use crate::server::{self, ServerContext, etcd_healthy, wait_until};
use crate::server_nodes::{self, OwnNode};
use crate::settings::Settings;
use crate::{log, server_files};

/// Runs until the process is stopped by a signal; an error is fatal.
pub(crate) async fn run(settings: Settings, faults: Arc<Faults>) -> anyhow::Result<()> {
    let node = Node::prepare(&settings)?;
    let server = ServerContext::open(&settings).await?;
    server::hold_before_core(&faults).await;
    // Written again once the apiserver is ready, as in RKE2.
    settings.paths.remove_pod_manifest("kube-proxy")?;
    let containerd = node.start_containerd(&settings, &faults).await?;
    let work = bring_up(&settings, &faults, &server, &node);
    tokio::select! {
        result = work => result?,
        error = containerd.ended() => return Err(error),
    }
    Ok(())
}

async fn bring_up(
    settings: &Settings,
    faults: &Arc<Faults>,
    server: &ServerContext,
    node: &Node,
) -> anyhow::Result<()> {
    let cluster = Cluster::of(settings);
    let identity = server::own_identity(settings, &server.files)?;
    node::write_credentials(&settings.paths, &identity, &server.files.proxy)?;
    let plane = control_plane::layout(settings, &node.bin);
    if !faults.strike_at(Stage::ControlPlane) {
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
    server::report_ready(settings, faults)?;
    finish(settings, faults, node, &cluster, &identity).await
}

async fn start_core(
    settings: &Settings,
    faults: &Arc<Faults>,
    server: &ServerContext,
    plane: &ControlPlane,
) -> anyhow::Result<()> {
    log::info!("Managed etcd cluster initializing");
    faults.hold_at(Stage::ControlPlane).await;
    server::log_join_commands(settings);
    server_files::write_kubeconfig(settings, &server.files)?;
    wait_until("Waiting for etcd server to become available", || etcd_healthy(settings)).await;
    log::info!("ETCD server is now running");
    static_pods::write(settings, &plane.apiserver)?;
    wait_until("Waiting for API server to become available", || async { server.admin.get("/readyz").await.is_ok() })
        .await;
    log::info!("Kube API server is now running");
    Ok(())
}

/// Writes and applies the manifests of network and DNS, and completes the server's own KubeNode. Keeps applying changed manifests.
async fn finish(
    settings: &Settings,
    faults: &Arc<Faults>,
    node: &Node,
    cluster: &Cluster,
    identity: &Identity,
) -> anyhow::Result<()> {
    let folder: Utf8PathBuf = settings.paths.data("server/manifests");
    manifests::write_all(settings, cluster, &node.bin, faults.strike_at(Stage::Network))?;
    let applying = async {
        apply::apply_continuously(folder, node.bin.join("kubectl"), settings.paths.cred("admin.kubeconfig")).await;
        Ok(())
    };
    // The first never ends, so this returns only if the second fails.
    tokio::try_join!(applying, registration::complete(settings, identity)).map(drop)
}
