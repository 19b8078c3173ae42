//! Static pods: writes one manifest per component to the folder that the kubelet reads.
//!
//! A manifest changes only if its component's arguments or the files that they name change, so a restart of `rke2` does not restart
//! running pods.

use camino::Utf8PathBuf;

use super::cluster::Cluster;
use super::pod::{Probe, Shape, render};
use crate::component::Component;
use crate::paths::{self, HostPaths};
use crate::settings::Settings;

/// Host folders mounted into kube-proxy for the host's iptables, whose variant and version must match those of the host's other programs.
const IPTABLES_FOLDERS: [&str; 4] = ["/usr", "/lib", "/lib64", "/etc/alternatives"];

/// Writes the manifest of a control plane component.
pub(super) fn write(settings: &Settings, component: &Component) -> anyhow::Result<()> {
    let host = &settings.paths;
    let http = |port, path| Probe::Http { scheme: "HTTPS", port, path };
    let read = |path: &str| (host.data(path), false);
    let shape = match component.name {
        "etcd" => Shape {
            probe: Probe::Http { scheme: "HTTP", port: 2381, path: "/health?serializable=true" },
            cpu: "200m",
            memory: "512Mi",
            folders: vec![(host.data("server/db/etcd"), true), read("server/tls/etcd")],
            privileged: false,
        },
        "kube-apiserver" => Shape {
            probe: Probe::Kubectl,
            cpu: "250m",
            memory: "1024Mi",
            folders: vec![(host.data("server"), true), (host.at("/etc/rancher/rke2"), false)],
            privileged: false,
        },
        "kube-controller-manager" => Shape {
            probe: http(10257, "/healthz"),
            cpu: "200m",
            memory: "256Mi",
            folders: vec![read("server/tls"), read("server/cred")],
            privileged: false,
        },
        _ => Shape {
            probe: http(10259, "/livez"),
            cpu: "100m",
            memory: "128Mi",
            folders: vec![read("server/tls"), read("server/cred")],
            privileged: false,
        },
    };
    place(host, component.name, &component.arguments, &shape)
}

/// Writes the manifest of kube-proxy.
pub(super) fn write_proxy(settings: &Settings, cluster: &Cluster) -> anyhow::Result<()> {
    let host = &settings.paths;
    let kubeconfig = host.data("agent/kubeproxy.kubeconfig");
    let mut arguments = vec![
        format!("--cluster-cidr={}", cluster.cidr),
        "--conntrack-max-per-core=0".to_owned(),
        "--conntrack-tcp-timeout-close-wait=0s".to_owned(),
        "--conntrack-tcp-timeout-established=0s".to_owned(),
        "--healthz-bind-address=127.0.0.1".to_owned(),
        format!("--hostname-override={}", settings.node_name),
        format!("--kubeconfig={kubeconfig}"),
        "--proxy-mode=iptables".to_owned(),
    ];
    arguments.extend(settings.options.values("kube-proxy-arg").iter().map(|argument| format!("--{argument}")));
    let shape = Shape {
        probe: Probe::Http { scheme: "HTTP", port: 10256, path: "/livez" },
        cpu: "250m",
        memory: "128Mi",
        folders: IPTABLES_FOLDERS.map(|folder| (Utf8PathBuf::from(folder), false)).to_vec(),
        privileged: true,
    };
    place(host, "kube-proxy", &arguments, &shape)
}

fn place(host: &HostPaths, name: &str, arguments: &[String], shape: &Shape) -> anyhow::Result<()> {
    let text = serde_saphyr::to_string(&render(host, name, arguments, shape)?)?;
    let path = host.pod_manifest(name);
    if paths::read_optional(&path)?.as_deref() == Some(text.as_str()) {
        return Ok(());
    }
    paths::make_dir(&host.data("agent/pod-manifests"), 0o700)?;
    Ok(paths::write(&path, 0o644, text)?)
}
