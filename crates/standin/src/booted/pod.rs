//! A static pod's manifest: one container in the host's network, with host folders mounted at the same paths.

use std::fs;

use aws_lc_rs::digest::{Context as Digest, SHA256};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Value, json};

use crate::paths::HostPaths;
use crate::settings::APISERVER_PORT;
use crate::version::image;

/// The kubelet's probe of a component.
pub(super) enum Probe {
    /// `SCHEME://localhost:port/path`.
    Http { scheme: &'static str, port: u16, path: &'static str },
    /// Runs kubectl with a client certificate, because the apiserver refuses anonymous requests.
    Kubectl,
}

/// Properties of a component's pod other than its arguments.
pub(super) struct Shape {
    pub(super) probe: Probe,
    pub(super) cpu: &'static str,
    pub(super) memory: &'static str,
    /// Host folders to mount at the same path, and whether each is writable.
    pub(super) folders: Vec<(Utf8PathBuf, bool)>,
    /// Whether the container is privileged and gets the iptables lock, to change the host's packet filter.
    pub(super) privileged: bool,
}

const XTABLES_LOCK: &str = "/run/xtables.lock";

/// Renders the manifest of `name`, which is the name of both the program and its image.
pub(super) fn render(host: &HostPaths, name: &str, arguments: &[String], shape: &Shape) -> anyhow::Result<Value> {
    let probe = |path: &'static str, delay: u32, timeout: u32, failures: u32| {
        let mut probe = json!({
            "initialDelaySeconds": delay, "timeoutSeconds": timeout, "failureThreshold": failures, "periodSeconds": 10,
        });
        probe[if matches!(shape.probe, Probe::Kubectl) { "exec" } else { "httpGet" }] =
            probe_action(host, &shape.probe, path);
        probe
    };
    let (mut mounts, mut volumes) = (Vec::new(), Vec::new());
    for (at, (path, written)) in shape.folders.iter().enumerate() {
        mounts.push(json!({ "name": format!("dir{at}"), "mountPath": path, "readOnly": !written }));
        volumes.push(json!({ "name": format!("dir{at}"), "hostPath": { "path": path, "type": "DirectoryOrCreate" } }));
    }
    let mut files: Vec<(&Utf8Path, &str, bool)> = Vec::new();
    for file in named_files(arguments).filter(|file| !shape.folders.iter().any(|(folder, _)| file.starts_with(folder)))
    {
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

/// The `exec` or `httpGet` of a probe. `path` applies only to the apiserver, which distinguishes liveness from readiness.
fn probe_action(host: &HostPaths, probe: &Probe, path: &str) -> Value {
    match probe {
        Probe::Http { scheme, port, path } => {
            json!({ "host": "localhost", "scheme": scheme, "port": port, "path": path })
        }
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

/// The existing files that arguments name, except the audit log.
fn named_files(arguments: &[String]) -> impl Iterator<Item = &Utf8Path> {
    let values = arguments.iter().filter(|argument| !argument.starts_with("--audit-log-path="));
    let paths = values.filter_map(|argument| argument.split_once('=')).map(|(_, value)| Utf8Path::new(value));
    paths.filter(|path| path.is_absolute() && path.is_file())
}

/// Hashes the content of the files that the arguments name, so that a new certificate changes the pod.
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
    fn pod_hash_covers_argument_files_but_not_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let (certificate, log) = (dir.join("a.crt"), dir.join("audit.log"));
        let arguments =
            [format!("--tls-cert-file={certificate}"), format!("--audit-log-path={log}"), "--v=0".to_owned()];
        fs::write(&certificate, "one").unwrap();
        let first = hash(&arguments).unwrap();
        fs::write(&log, "a line").unwrap();
        assert_eq!(hash(&arguments).unwrap(), first);
        fs::write(&certificate, "two").unwrap();
        assert_ne!(hash(&arguments).unwrap(), first);
    }
}
