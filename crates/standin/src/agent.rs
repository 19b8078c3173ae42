//! `rke2 agent`: joins a server, registers its KubeNode and renews the KubeNode's Lease.

use std::time::Duration;

use anyhow::Context as _;

use crate::faults::{Fault, Faults};
use crate::join::{Join, Joined};
use crate::kubenode::{KubeNode, Readiness};
use crate::settings::Settings;
use crate::version::{COMMIT, RELEASE};
use crate::{counters, kubelet_api, log, notify, runtime, server_files};

/// Interval between the log lines that imitate a kubelet that exits at every start.
const KUBELET_RESTART_EVERY: Duration = Duration::from_secs(5);

/// Checks faults and writes the first files, before anything joins.
pub(crate) fn begin(settings: &Settings) -> anyhow::Result<Faults> {
    let faults = Faults::read(&settings.paths)?;
    log::info!("Starting rke2 agent {RELEASE} ({COMMIT})");
    if let Some(text) = faults.fatal_text(&settings.node_name, &settings.address.to_string()) {
        anyhow::bail!(text);
    }
    server_files::write_pod_security(&settings.paths)?;
    Ok(faults)
}

/// Runs on a sandbox node until the process is stopped by a signal; an error is fatal.
pub(crate) async fn run(settings: Settings, faults: Faults) -> anyhow::Result<()> {
    let join = Join::new(&settings, &faults)?;
    runtime::install(&settings.paths)?;
    let Joined { identity, .. } = join.run().await?;
    identity.write(&settings.paths)?;
    if faults.has(Fault::KubeletExited) {
        log_kubelet_exits_forever().await;
    }
    kubelet_api::start(&identity).await?;
    let node = KubeNode::new(&settings, &identity)?;
    // Returns once the apiserver is reachable and the KubeNode carries its labels: the two conditions for `READY=1`.
    node.register().await;
    if !faults.has(Fault::NeverReady) {
        report_ready(&settings)?;
    }
    let readiness = if faults.has(Fault::CniNotInitialized) { Readiness::NoCni } else { Readiness::Ready };
    node.keep_alive(readiness).await;
    Ok(())
}

/// Reports the agent as ready to the journal, the service manager and the counters.
pub(crate) fn report_ready(settings: &Settings) -> anyhow::Result<()> {
    log::info!("rke2 agent is up and running");
    notify::ready().context("NOTIFY_SOCKET")?;
    counters::record(&settings.paths, settings.role.name(), "ready");
    Ok(())
}

/// Logs forever the line that RKE2 logs when its kubelet exits because of a removed flag.
pub(crate) async fn log_kubelet_exits_forever() -> ! {
    loop {
        log::error!("Kubelet exited: exit status 1");
        tokio::time::sleep(KUBELET_RESTART_EVERY).await;
    }
}
