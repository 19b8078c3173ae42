//! Static pods: a manifest per component in the folder that the kubelet reads, and nothing else.
//!
//! A manifest changes only when its component's arguments or the files that they name change, so a restarted `rke2` leaves running pods
//! alone.

use std::fs;

use aws_lc_rs::digest::{Context as Digest, SHA256};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::component::Component;
use crate::paths::{self, HostPaths};
use crate::settings::{APISERVER_PORT, Settings};
use crate::version::image;

/// How the kubelet asks whether a component lives.
enum Probe {
    /// `http(s)://localhost:port/path`.
    Http { scheme: &'static str, port: u16, path: &'static str },
    /// The apiserver knows no anonymous caller: kubectl asks it with a certificate.
    Kubectl,
}

/// What a component's pod has besides its arguments.
struct Shape {
    probe: Probe,
    cpu: &'static str,
    memory: &'static str,
    /// Folders of the host, each at its own place; whether they are written to.
    folders: Vec<(Utf8PathBuf, bool)>,
    privileged: bool,
}

/// The folders from which a container takes the host's own iptables, whose kind and version have to be those that the host's other
/// programs use.
const IPTABLES_FOLDERS: [&str; 4] = ["/usr", "/lib", "/lib64", "/etc/alternatives"];
const XTABLES_LOCK: &str = "/run/xtables.lock";

/// Writes the pod of one of the control plane's components.
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

/// Writes kube-proxy's pod.
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
    arguments.extend(settings.options.whole("kube-proxy-arg").iter().map(|argument| format!("--{argument}")));
    let shape = Shape {
        probe: Probe::Http { scheme: "HTTP", port: 10256, path: "/livez" },
        cpu: "250m",
        memory: "128Mi",
        folders: IPTABLES_FOLDERS.map(|folder| (Utf8PathBuf::from(folder), false)).to_vec(),
        privileged: true,
    };
    place(host, "kube-proxy", &arguments, &shape)
}

/// Removes a pod's manifest. The kubelet ends the pod when it next looks.
pub(crate) fn remove(host: &HostPaths, name: &str) -> anyhow::Result<()> {
    match fs::remove_file(manifest(host, name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn manifest(host: &HostPaths, name: &str) -> Utf8PathBuf {
    host.data("agent/pod-manifests").join(format!("{name}.yaml"))
}

fn place(host: &HostPaths, name: &str, arguments: &[String], shape: &Shape) -> anyhow::Result<()> {
    let text = serde_saphyr::to_string(&pod(host, name, arguments, shape)?)?;
    let path = manifest(host, name);
    if paths::read_optional(&path)?.as_deref() == Some(text.as_str()) {
        return Ok(());
    }
    paths::make_dir(&host.data("agent/pod-manifests"), 0o700)?;
    Ok(paths::write(&path, 0o644, text)?)
}

fn pod(host: &HostPaths, name: &str, arguments: &[String], shape: &Shape) -> anyhow::Result<Value> {
    let probe = |path: &'static str, delay: u32, timeout: u32, failures: u32| {
        let mut probe = json!({
            "initialDelaySeconds": delay, "timeoutSeconds": timeout, "failureThreshold": failures, "periodSeconds": 10,
        });
        probe[if matches!(shape.probe, Probe::Kubectl) { "exec" } else { "httpGet" }] = asked(host, &shape.probe, path);
        probe
    };
    let (mut mounts, mut volumes) = (Vec::new(), Vec::new());
    for (at, (path, written)) in shape.folders.iter().enumerate() {
        mounts.push(json!({ "name": format!("dir{at}"), "mountPath": path, "readOnly": !written }));
        volumes.push(json!({ "name": format!("dir{at}"), "hostPath": { "path": path, "type": "DirectoryOrCreate" } }));
    }
    let mut files: Vec<(&Utf8Path, &str, bool)> = Vec::new();
    for file in named_files(arguments).filter(|file| !shape.folders.iter().any(|(folder, _)| file.starts_with(folder))) {
        files.push((file, "File", true));
    }
    if shape.privileged {
        files.push((XTABLES_LOCK.into(), "FileOrCreate", false));
    }
    for (at, (path, kind, read_only)) in files.into_iter().enumerate() {
        mounts.push(json!({ "name": format!("file{at}"), "mountPath": path, "readOnly": read_only }));
        volumes.push(json!({ "name": format!("file{at}"), "hostPath": { "path": path, "type": kind } }));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": { "component": name, "tier": "control-plane" },
        },
        "spec": {
            "containers": [{
                "name": name,
                "image": image(name),
                "imagePullPolicy": "IfNotPresent",
                "command": [name],
                "args": arguments,
                "env": [{ "name": "FILE_HASH", "value": hash(arguments)? }],
                "resources": { "requests": { "cpu": shape.cpu, "memory": shape.memory } },
                "livenessProbe": probe("/livez", 10, 15, 8),
                "readinessProbe": probe("/readyz", 0, 15, 3),
                "startupProbe": probe("/livez", 0, 5, 24),
                "securityContext": { "privileged": shape.privileged },
                "volumeMounts": mounts,
            }],
            "hostNetwork": true,
            "priorityClassName": "system-cluster-critical",
            "volumes": volumes,
        },
    }))
}

/// `exec` or `httpGet` of a probe. Only the apiserver tells being alive from being ready.
fn asked(host: &HostPaths, probe: &Probe, path: &str) -> Value {
    match probe {
        Probe::Http { scheme, port, path } => json!({ "host": "localhost", "scheme": scheme, "port": port, "path": path }),
        Probe::Kubectl => json!({ "command": [
            "kubectl",
            "get",
            format!("--server=https://localhost:{APISERVER_PORT}/"),
            format!("--client-certificate={}", host.tls("client-kube-apiserver.crt")),
            format!("--client-key={}", host.tls("client-kube-apiserver.key")),
            format!("--certificate-authority={}", host.tls("server-ca.crt")),
            format!("--raw={path}"),
        ] }),
    }
}

/// The files that arguments name and that are there.
fn named_files(arguments: &[String]) -> impl Iterator<Item = &Utf8Path> {
    let values = arguments.iter().filter(|argument| !argument.starts_with("--audit-log-path="));
    let paths = values.filter_map(|argument| argument.split_once('=')).map(|(_, value)| Utf8Path::new(value));
    paths.filter(|path| path.is_absolute() && path.is_file())
}

/// Changes with the content of any file that the arguments name, so that a new certificate makes a new pod.
fn hash(arguments: &[String]) -> anyhow::Result<String> {
    let mut digest = Digest::new(&SHA256);
    for file in named_files(arguments) {
        digest.update(&fs::read(file)?);
    }
    Ok(hex::encode(digest.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_changes_with_the_files_that_its_arguments_name_and_not_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let (certificate, log) = (dir.join("a.crt"), dir.join("audit.log"));
        let arguments = [format!("--tls-cert-file={certificate}"), format!("--audit-log-path={log}"), "--v=0".to_owned()];
        fs::write(&certificate, "one").unwrap();
        let first = hash(&arguments).unwrap();
        fs::write(&log, "a line").unwrap();
        assert_eq!(hash(&arguments).unwrap(), first);
        fs::write(&certificate, "two").unwrap();
        assert_ne!(hash(&arguments).unwrap(), first);
    }
}
