//! `rke2 agent` on a booted machine: joins, then runs containerd, kubelet and kube-proxy behind the agent's own load balancer.

use std::sync::Arc;

use super::cluster::Cluster;
use super::node::{self, Node};
use super::{load_balancer, registration, static_pods};
use crate::agent::report_ready;
use crate::api_client::join_host_port;
use crate::faults::{Faults, Stage};
use crate::identity::Identity;
use crate::identity::LOAD_BALANCER;
use crate::join::{Join, Joined};
use crate::settings::{APISERVER_PORT, Settings};

/// Runs until the process is stopped by a signal; an error is fatal.
pub(crate) async fn run(settings: Settings, faults: Arc<Faults>) -> anyhow::Result<()> {
    let join = Join::new(&settings, &faults)?;
    let node = Node::prepare(&settings)?;
    // Written again once the apiserver is known, as in RKE2.
    settings.paths.remove_pod_manifest("kube-proxy")?;
    let joined = join.run().await?;
    let (cluster, identity) = prepare_connections(&settings, &join, joined).await?;
    faults.hold_at(Stage::Joined).await;
    let containerd = node.start_containerd(&settings, &faults).await?;
    let work = async {
        static_pods::write_proxy(&settings, &cluster)?;
        node.start_kubelet(&settings, &cluster)?;
        registration::complete(&settings, &identity).await?;
        report_ready(&settings, &faults)?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        result = work => result,
        error = containerd.ended() => Err(error),
    }
}

/// Starts the load balancers for apiservers and supervisor, and writes the node's credentials.
async fn prepare_connections(
    settings: &Settings,
    join: &Join<'_>,
    joined: Joined,
) -> anyhow::Result<(Cluster, Identity)> {
    let Joined { identity, proxy, mut apiservers, cluster } = joined;
    let cluster = Cluster::from_config(&cluster)?;
    // Last: the host in the `server` option, in case all listed addresses have changed.
    let registered = join_host_port(join.host(), APISERVER_PORT);
    if !apiservers.contains(&registered) {
        apiservers.push(registered);
    }
    load_balancer::serve("rke2-api-server-agent-load-balancer", APISERVER_PORT, apiservers).await?;
    load_balancer::serve("rke2-agent-load-balancer", load_balancer_port(settings)?, vec![join.supervisor()]).await?;
    // From here on, the node uses only its own load balancer.
    let identity = Identity { apiserver: LOAD_BALANCER.to_owned(), ..identity };
    node::write_credentials(&settings.paths, &identity, &proxy)?;
    Ok((cluster, identity))
}

fn load_balancer_port(settings: &Settings) -> anyhow::Result<u16> {
    match settings.options.value("lb-server-port") {
        None => Ok(6444),
        Some(text) => text.parse().map_err(|_| anyhow::anyhow!("invalid lb-server-port {text}")),
    }
}
