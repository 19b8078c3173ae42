//! `rke2 agent`: joins a server, registers its KubeNode and renews the KubeNode's Lease.

use std::sync::Arc;

use anyhow::Context as _;

use crate::faults::{Faults, Stage};
use crate::join::{Join, Joined};
use crate::kubenode::KubeNode;
use crate::settings::Settings;
use crate::version::{COMMIT, RELEASE};
use crate::{counters, kubelet_api, log, notify, pods, runtime, server_files};

/// Checks faults and writes the first files, before anything joins.
pub(crate) fn begin(settings: &Settings) -> anyhow::Result<Arc<Faults>> {
    let faults = Faults::read(settings)?;
    log::info!("Starting rke2 agent {RELEASE} ({COMMIT})");
    faults.exit_at_start()?;
    server_files::write_pod_security(&settings.paths)?;
    Ok(Arc::new(faults))
}

/// Runs on a sandbox node until the process is stopped by a signal; an error is fatal.
pub(crate) async fn run(settings: Settings, faults: Arc<Faults>) -> anyhow::Result<()> {
    let join = Join::new(&settings, &faults)?;
    let bin = runtime::install(&settings.paths)?;
    let Joined { identity, .. } = join.run().await?;
    identity.write(&settings.paths)?;
    faults.hold_at(Stage::Joined).await;
    kubelet_api::start(&identity).await?;
    let node = KubeNode::new(&settings, &identity)?;
    // Returns once the apiserver is reachable and the KubeNode carries its labels: the two conditions for `READY=1`.
    node.register().await;
    pods::start(&settings, &identity, &bin)?;
    report_ready(&settings, &faults)?;
    node.keep_alive(faults.readiness()).await;
    Ok(())
}

/// Reports the agent as ready to the journal, the service manager and the counters, unless a fault prevents it.
pub(crate) fn report_ready(settings: &Settings, faults: &Arc<Faults>) -> anyhow::Result<()> {
    if faults.strike_at(Stage::Silent) {
        return Ok(());
    }
    log::info!("rke2 agent is up and running");
    notify::ready().context("NOTIFY_SOCKET")?;
    counters::record(&settings.paths, settings.role.name(), "ready");
    faults.follow_readiness();
    Ok(())
}
