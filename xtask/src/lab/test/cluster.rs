//! A delivered cluster, spoken to as its tenant does: genuine kubectl with the kubeconfig that the platform delivered.

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

use super::control_plane::{ControlPlane, alone};

/// kubectl, for one workload's cluster.
pub(crate) struct Cluster {
    kubectl: Utf8PathBuf,
    kubeconfig: Utf8PathBuf,
    home: Utf8PathBuf,
}

impl ControlPlane {
    /// Takes a kubeconfig of the role that may do everything in a workload's cluster. Needs [`Part::Kubectl`](super::prepare::Part::Kubectl).
    pub(crate) fn cluster(&self, workload: &str) -> anyhow::Result<Cluster> {
        let delivered: AccessGranted = self.gpuaas(&["workload", "kubeconfig", workload, "--role", "cluster-admin"])?;
        let kubeconfig = self.folder().join(format!("{workload}-{}.kubeconfig", delivered.grant));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&kubeconfig)?;
        file.write_all(delivered.kubeconfig.as_bytes()).with_context(|| kubeconfig.to_string())?;
        Ok(Cluster { kubectl: self.kubectl()?.to_owned(), kubeconfig, home: self.folder().to_owned() })
    }
}

impl Cluster {
    /// A command of kubectl, for whoever needs its streams.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = alone(&self.kubectl, &self.home);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(words);
        command
    }

    /// What a command of kubectl that must succeed writes to stdout, without white space at its ends.
    pub(crate) fn says(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.command(words).output().context("running kubectl")?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "kubectl {}: {}: {out}{err}", words.join(" "), output.status);
        Ok(out.trim().to_owned())
    }

    /// The same as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<T> {
        let said = self.says(&[words, &["--output", "json"]].concat())?;
        serde_json::from_str(&said).with_context(|| format!("kubectl {}", words.join(" ")))
    }

    /// Applies a manifest.
    pub(crate) fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let mut command = self.command(&["apply", "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("its input")?.write_all(manifest.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Waits, by a watch of kubectl's own, until all of `what` are as `condition` says: `condition=Ready`, `jsonpath={…}=…`.
    pub(crate) fn wait(&self, what: &[&str], condition: &str, longest: Duration) -> anyhow::Result<()> {
        let (condition, longest) = (format!("--for={condition}"), format!("--timeout={}s", longest.as_secs()));
        self.says(&[&["wait", &condition, &longest][..], what].concat()).map(drop)
    }
}
