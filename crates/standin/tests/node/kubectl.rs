//! kubectl, as an administrator of a test's cluster runs it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{Node, succeeded};

/// kubectl with the administrator's kubeconfig.
pub(crate) struct Kubectl<'a> {
    pub(crate) programs: &'a Path,
    kubeconfig: PathBuf,
}

impl<'a> Kubectl<'a> {
    /// Copies the server's kubeconfig, with the node's address for the loopback address.
    pub(crate) fn new(server: &Node, programs: &'a Path) -> Self {
        let text = server.read("etc/rancher/rke2/rke2.yaml");
        assert!(text.contains("server: https://127.0.0.1:6443"), "the kubeconfig has RKE2's server address");
        let kubeconfig = server.path("kubeconfig");
        fs::write(&kubeconfig, text.replace("127.0.0.1", &server.address)).unwrap();
        Self { programs, kubeconfig }
    }

    fn output(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new(self.programs.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.kubeconfig.with_extension("cache"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Returns the output; panics if kubectl fails.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        succeeded(&self.output(arguments, ""))
    }

    /// Applies a manifest.
    pub(crate) fn apply(&self, manifest: &str) {
        succeeded(&self.output(&["apply", "-f", "-"], manifest));
    }

    /// Returns the error output; panics if kubectl succeeds.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments, "");
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub(crate) fn wait_ready(&self, node: &str) {
        // `wait` fails at once if the KubeNode does not exist yet; `--for=create` waits for its creation.
        self.run(&["wait", "--for=create", &format!("node/{node}"), "--timeout=30s"]);
        self.run(&["wait", "--for=condition=Ready", &format!("node/{node}"), "--timeout=30s"]);
    }
}
