//! containerd: its configuration, its start and the import of preloaded images.

use std::time::Duration;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};

use super::child::{self, Child};
use super::images;
use super::machine::{Cgroups, Machine};
use crate::faults::{Faults, Stage};
use crate::log;
use crate::paths::{self, CONTAINERD_SOCKET, HostPaths};
use crate::settings::Settings;
use crate::version::image;

const STATE: &str = "/run/k3s/containerd";
/// Configuration of a fault: containerd finds no CNI plugin, so the kubelet reports that none is initialized.
const NO_NETWORK: &str = "\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = \"/run/k3s/no-cni\"\n";
/// Interval between probes for the socket of a starting containerd.
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// A running containerd.
pub(super) struct Containerd {
    process: tokio::process::Child,
}

impl Containerd {
    /// Starts containerd, waits until its socket accepts connections, and imports the preloaded images.
    pub(super) async fn start(
        settings: &Settings,
        faults: &Faults,
        machine: &Machine,
        bin: &Utf8Path,
    ) -> anyhow::Result<Self> {
        let host = &settings.paths;
        let configuration = host.data("agent/etc/containerd/config.toml");
        paths::make_dir(&host.data("agent/etc/containerd"), 0o700)?;
        paths::make_dir(&host.data("agent/containerd"), 0o711)?;
        paths::make_dir(STATE.into(), 0o711)?;
        let snapshotter = snapshotter(settings, machine);
        let mut text = configure(host, machine, bin, snapshotter);
        if faults.strike_at(Stage::Network) {
            text.push_str(NO_NETWORK);
        }
        paths::write(&configuration, 0o600, text)?;
        let log = host.data("agent/containerd/containerd.log");
        log::info!("Logging containerd to {log}");
        let program = bin.join("containerd");
        let arguments = ["-c", configuration.as_str()].map(str::to_owned).to_vec();
        let mut process = Child { program, arguments, log: log.clone() }.start()?;
        while !child::listens(CONTAINERD_SOCKET.into()).await {
            if let Some(status) = process.try_wait()? {
                anyhow::bail!("containerd exited: {}, see {log}", child::exit_text(status));
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
        log::info!("containerd is now running");
        let (host, ctr, snapshotter) = (host.clone(), bin.join("ctr"), snapshotter.to_owned());
        tokio::task::spawn_blocking(move || images::import_all(&host, &ctr, &snapshotter)).await??;
        Ok(Self { process })
    }

    /// Returns an error when containerd has exited, which ends `rke2` as with RKE2.
    pub(super) async fn ended(mut self) -> anyhow::Error {
        match self.process.wait().await.context("failed to wait for containerd") {
            Ok(status) => anyhow::anyhow!("containerd exited: {}", child::exit_text(status)),
            Err(error) => error,
        }
    }
}

fn snapshotter<'a>(settings: &'a Settings, machine: &Machine) -> &'a str {
    match settings.options.value("snapshotter") {
        Some(chosen) => chosen,
        None if machine.overlays => "overlayfs",
        None => "native",
    }
}

fn configure(host: &HostPaths, machine: &Machine, bin: &Utf8Path, snapshotter: &str) -> String {
    let root: Utf8PathBuf = host.data("agent/containerd");
    let (pause, runc) = (image("pause"), bin.join("runc"));
    let (restricted, by_systemd) = (!machine.lowers_oom_scores, machine.cgroups == Cgroups::V2);
    format!(
        "# Written by rke2 at every start.\n\
         version = 3\n\
         root = \"{root}\"\n\
         state = \"{STATE}\"\n\
         \n\
         [grpc]\n\
         address = \"{CONTAINERD_SOCKET}\"\n\
         \n\
         [plugins.'io.containerd.internal.v1.opt']\n\
         path = \"{root}\"\n\
         \n\
         [plugins.'io.containerd.grpc.v1.cri']\n\
         stream_server_address = \"127.0.0.1\"\n\
         stream_server_port = \"10010\"\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime']\n\
         enable_selinux = false\n\
         enable_unprivileged_ports = true\n\
         enable_unprivileged_icmp = true\n\
         restrict_oom_score_adj = {restricted}\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
         BinaryName = \"{runc}\"\n\
         SystemdCgroup = {by_systemd}\n\
         \n\
         [plugins.'io.containerd.cri.v1.images']\n\
         snapshotter = \"{snapshotter}\"\n\
         disable_snapshot_annotations = true\n\
         \n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
         sandbox = \"{pause}\"\n"
    )
}
