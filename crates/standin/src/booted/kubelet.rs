//! The kubelet: its configuration, its arguments, and its supervision as a child process that is restarted when it exits.

use std::time::Duration;

use camino::Utf8Path;
use serde_json::{Value, json};

use super::child::{self, Child};
use super::cluster::Cluster;
use super::machine::{Cgroups, Machine};
use super::system;
use crate::log;
use crate::paths::{self, CONTAINERD_SOCKET};
use crate::settings::Settings;

/// Delay before a kubelet that exited is restarted.
const RESTART_AFTER: Duration = Duration::from_secs(5);

/// Starts the kubelet and restarts it whenever it exits, until `rke2` ends.
pub(super) fn start(settings: &Settings, machine: &Machine, cluster: &Cluster, bin: &Utf8Path) -> anyhow::Result<()> {
    let host = &settings.paths;
    let folder = host.data("agent/etc/kubelet.conf.d");
    for (path, mode) in [(&folder, 0o700), (&host.data("agent/pod-manifests"), 0o700)] {
        paths::make_dir(path, mode)?;
    }
    let configuration = serde_saphyr::to_string(&configuration(settings, machine, cluster)?)?;
    paths::write(&folder.join("00-rke2-defaults.conf"), 0o600, configuration)?;
    let log = host.data("agent/logs/kubelet.log");
    let child = Child { program: bin.join("kubelet"), arguments: arguments(settings, &folder), log };
    let first = child.start()?;
    tokio::spawn(keep_running(child, first));
    Ok(())
}

async fn keep_running(child: Child, mut process: tokio::process::Child) {
    loop {
        match process.wait().await {
            Ok(status) => log::error!("Kubelet exited: {}", child::exit_text(status)),
            Err(error) => log::error!("Kubelet exited: {error}"),
        }
        process = loop {
            tokio::time::sleep(RESTART_AFTER).await;
            match child.start() {
                Ok(process) => break process,
                Err(error) => log::error!("Kubelet exited: {error:#}"),
            }
        };
    }
}

fn arguments(settings: &Settings, folder: &Utf8Path) -> Vec<String> {
    let mut arguments = vec![
        format!("--config-dir={folder}"),
        format!("--kubeconfig={}", settings.paths.data("agent/kubelet.kubeconfig")),
        "--root-dir=/var/lib/kubelet".to_owned(),
        "--cert-dir=/var/lib/kubelet/pki".to_owned(),
        format!("--hostname-override={}", settings.node_name),
        format!("--node-ip={}", settings.address),
        // The default, port 10255, requires no credentials.
        "--read-only-port=0".to_owned(),
    ];
    let mut labels = vec!["node.kubernetes.io/instance-type=rke2".to_owned()];
    labels.extend(settings.options.list("node-label"));
    arguments.push(format!("--node-labels={}", labels.join(",")));
    let taints = settings.options.list("node-taint");
    if !taints.is_empty() {
        arguments.push(format!("--register-with-taints={}", taints.join(",")));
    }
    arguments.extend(settings.options.values("kubelet-arg").iter().map(|argument| format!("--{argument}")));
    arguments
}

fn configuration(settings: &Settings, machine: &Machine, cluster: &Cluster) -> anyhow::Result<Value> {
    let data = |path: &str| settings.paths.data(path).into_string();
    let resolv_conf = system::resolv_conf(&settings.paths, settings.options.value("resolv-conf"))?;
    let mut configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true, "cacheTTL": "2m0s" },
            "x509": { "clientCAFile": data("agent/client-ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDNS": [cluster.dns],
        "clusterDomain": cluster.domain,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "evictionHard": { "imagefs.available": "5%", "nodefs.available": "5%" },
        "evictionMinimumReclaim": { "imagefs.available": "10%", "nodefs.available": "10%" },
        "failSwapOn": false,
        "fileCheckFrequency": "5s",
        "healthzBindAddress": "127.0.0.1",
        "providerID": format!("rke2://{}", settings.node_name),
        "resolvConf": resolv_conf,
        "serializeImagePulls": false,
        "staticPodPath": data("agent/pod-manifests"),
        "syncFrequency": "30s",
        "tlsCertFile": data("agent/serving-kubelet.crt"),
        "tlsPrivateKeyFile": data("agent/serving-kubelet.key"),
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    });
    if let Some(fields) = configuration.as_object_mut() {
        fields.extend(concessions(machine));
    }
    Ok(configuration)
}

/// Configuration that depends on what this machine supports.
fn concessions(machine: &Machine) -> serde_json::Map<String, Value> {
    let mut fields = serde_json::Map::new();
    match &machine.cgroups {
        Cgroups::V2 => {
            fields.insert("cgroupDriver".to_owned(), json!("systemd"));
        }
        Cgroups::V1 { root, .. } => {
            fields.insert("cgroupDriver".to_owned(), json!("cgroupfs"));
            fields.insert("failCgroupV1".to_owned(), json!(false));
            if let Some(root) = root {
                fields.insert("cgroupRoot".to_owned(), json!(root));
            }
        }
    }
    if !machine.counts_storage {
        fields.insert("localStorageCapacityIsolation".to_owned(), json!(false));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_opens_no_port_without_credentials() {
        let settings = Settings::of_options(&["--node-ip", "127.3.2.1"]);
        let arguments = arguments(&settings, Utf8Path::new("/conf"));
        assert!(arguments.iter().any(|argument| argument == "--read-only-port=0"), "{arguments:?}");
    }

    #[test]
    fn a_machine_gets_exactly_the_concessions_it_needs() {
        let able = Machine { cgroups: Cgroups::V2, lowers_oom_scores: true, overlays: true, counts_storage: true };
        assert_eq!(Value::Object(concessions(&able)), json!({ "cgroupDriver": "systemd" }));
        let cgroups = Cgroups::V1 { root: Some("/n1".to_owned()), trees: Vec::new() };
        let poor = Machine { cgroups, lowers_oom_scores: false, overlays: false, counts_storage: false };
        let expected = json!({
            "cgroupDriver": "cgroupfs", "failCgroupV1": false, "cgroupRoot": "/n1", "localStorageCapacityIsolation": false,
        });
        assert_eq!(Value::Object(concessions(&poor)), expected);
    }
}
