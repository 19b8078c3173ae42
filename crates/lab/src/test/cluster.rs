//! A deployed cluster, used as a tenant uses it: genuine kubectl with the kubeconfig that the platform delivers.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use camino::Utf8PathBuf;
use gpuaas_api_types::AccessGranted;
use serde::de::DeserializeOwned;

use super::control_plane::{ControlPlane, isolated_command};

/// kubectl for the cluster of one workload.
pub(crate) struct Cluster {
    kubectl: Utf8PathBuf,
    kubeconfig: Utf8PathBuf,
    home: Utf8PathBuf,
}

impl ControlPlane {
    /// Requests a kubeconfig with the role `cluster-admin`. Needs [`Part::Kubectl`](super::parts::Part::Kubectl).
    pub(crate) fn cluster(&self, workload: &str) -> anyhow::Result<Cluster> {
        let delivered: AccessGranted = self.gpuaas(&["workload", "kubeconfig", workload, "--role", "cluster-admin"])?;
        let kubeconfig = self.folder().join(format!("{workload}-{}.kubeconfig", delivered.grant));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&kubeconfig)?;
        file.write_all(delivered.kubeconfig.as_bytes()).with_context(|| kubeconfig.to_string())?;
        Ok(Cluster { kubectl: self.kubectl()?.to_owned(), kubeconfig, home: self.folder().to_owned() })
    }
}

impl Cluster {
    /// Returns a kubectl command, for callers that handle its streams.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = isolated_command(&self.kubectl, &self.home);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        command
    }

    /// Runs a kubectl command that must succeed; returns its trimmed stdout.
    pub(crate) fn capture(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(arguments).output().context("running kubectl")?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "kubectl {}: {}: {out}{err}", arguments.join(" "), output.status);
        Ok(out.trim().to_owned())
    }

    /// Runs a kubectl command and parses its JSON output.
    pub(crate) fn json<T: DeserializeOwned>(&self, arguments: &[&str]) -> anyhow::Result<T> {
        let output = self.capture(&[arguments, &["--output", "json"]].concat())?;
        serde_json::from_str(&output).with_context(|| format!("kubectl {}", arguments.join(" ")))
    }

    /// Applies a manifest.
    pub(crate) fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let mut command = self.command(&["apply", "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("stdin is not piped")?.write_all(manifest.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Waits with `kubectl wait` until all of `what` meet `condition`, such as `condition=Ready` or `jsonpath={…}=…`.
    pub(crate) fn wait(&self, what: &[&str], condition: &str, longest: Duration) -> anyhow::Result<()> {
        let (condition, longest) = (format!("--for={condition}"), format!("--timeout={}s", longest.as_secs()));
        self.capture(&[&["wait", &condition, &longest][..], what].concat()).map(drop)
    }
}
