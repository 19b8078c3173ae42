//! The parts that servers and agents on booted machines have in common.

use camino::{Utf8Path, Utf8PathBuf};

use super::cluster::Cluster;
use super::containerd::Containerd;
use super::machine::Machine;
use super::{kubelet, runtime_image, system};
use crate::api_client::join_host_port;
use crate::faults::Faults;
use crate::identity::Identity;
use crate::paths::{self, HostPaths};
use crate::pki::Leaf;
use crate::server_files::kubeconfig;
use crate::settings::{APISERVER_PORT, Settings};

/// A machine that is prepared to run containers.
pub(super) struct Node {
    pub(super) machine: Machine,
    /// The folder of the runtime's programs.
    pub(super) bin: Utf8PathBuf,
}

impl Node {
    /// Probes the machine, sets kernel parameters and unpacks the programs from the preloaded images. Fails unless run as root.
    pub(super) fn prepare(settings: &Settings) -> anyhow::Result<Self> {
        anyhow::ensure!(rustix::process::geteuid().is_root(), "{} must run as root", settings.role.name());
        let machine = Machine::probe(&settings.paths)?;
        system::set_kernel_settings();
        let bin = runtime_image::install(&settings.paths)?;
        Ok(Self { machine, bin })
    }

    /// Starts containerd and imports the preloaded images.
    pub(super) async fn start_containerd(&self, settings: &Settings, faults: &Faults) -> anyhow::Result<Containerd> {
        Containerd::start(settings, faults, &self.machine, &self.bin).await
    }

    /// Starts the kubelet.
    pub(super) fn start_kubelet(&self, settings: &Settings, cluster: &Cluster) -> anyhow::Result<()> {
        kubelet::start(settings, &self.machine, cluster, &self.bin)
    }
}

/// Writes the certificates and kubeconfigs of kubelet and kube-proxy.
pub(super) fn write_credentials(host: &HostPaths, identity: &Identity, proxy: &Leaf) -> anyhow::Result<()> {
    identity.write(host)?;
    let agent: &Utf8Path = &host.data("agent");
    paths::write(&agent.join("client-kube-proxy.key"), 0o600, &proxy.key)?;
    paths::write(&agent.join("client-kube-proxy.crt"), 0o644, &proxy.certificate)?;
    let server = format!("https://{}", join_host_port(&identity.apiserver, APISERVER_PORT));
    let text = kubeconfig(&server, &identity.server_ca, proxy, "user");
    Ok(paths::write(&agent.join("kubeproxy.kubeconfig"), 0o600, text)?)
}
