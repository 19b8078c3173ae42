//! The work of the cluster: a Deployment, whose pods move, and a DaemonSet, which shows that every node runs pods.

use std::time::Instant;

use anyhow::ensure;

use super::expectation::POLL_EVERY;
use crate::demo::running::{RunningDemo, WAIT_MAX};

/// Label `app` of the Deployment's pods.
pub(super) const WEB: &str = "web";
/// Label `app` of the DaemonSet's pods.
pub(super) const EVERYWHERE: &str = "everywhere";

/// Name of the process that stands for a pod on a sandbox node.
pub(super) const PROCESS: &str = "containerd-shim-stand-in";
const MANIFEST: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: REPLICAS
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: { matchLabels: { app: web } }
      containers: [{ name: web, image: docker.io/stand-in/busybox, command: [sleep, infinity] }]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: everywhere }
spec:
  selector: { matchLabels: { app: everywhere } }
  template:
    metadata: { labels: { app: everywhere } }
    spec:
      terminationGracePeriodSeconds: 5
      containers: [{ name: everywhere, image: docker.io/stand-in/busybox, command: [sleep, infinity] }]
";

/// Returns true if a pod with this label `app` belongs to the demo.
pub(super) fn is_ours(app: &str) -> bool {
    [WEB, EVERYWHERE].contains(&app)
}

/// Creates the Deployment with this number of replicas, and the DaemonSet.
pub(super) fn apply(running: &RunningDemo, replicas: usize) -> anyhow::Result<()> {
    create(running, "apply", "work.yaml", &manifest(replicas))
}

/// Runs `kubectl create` or `apply` with a manifest in a file of this name.
pub(super) fn create(running: &RunningDemo, verb: &str, name: &str, manifest: &str) -> anyhow::Result<()> {
    let path = running.folder.join(name);
    std::fs::write(&path, manifest)?;
    running.kubectl(&[verb, "--filename", path.as_str()]).map(drop)
}

/// Changes the number of replicas. New pods go to the node that runs the fewest of them.
pub(super) fn scale(running: &RunningDemo, replicas: usize) -> anyhow::Result<()> {
    running.kubectl(&["scale", "deployment", WEB, &format!("--replicas={replicas}")]).map(drop)
}

/// Waits until Kubernetes has removed the taint of a new KubeNode: the scheduler uses the node from then on.
pub(super) fn await_schedulable(running: &RunningDemo, node: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while !running.kubectl(&["get", "node", node, "--output", "jsonpath={.spec.taints}"])?.is_empty() {
        ensure!(began.elapsed() < WAIT_MAX, "{node} keeps its taints");
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}

fn manifest(replicas: usize) -> String {
    MANIFEST.replace("REPLICAS", &replicas.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_has_the_number_of_replicas_and_the_labels_that_pods_are_found_by() {
        let text = manifest(4);
        assert!(text.contains("\n  replicas: 4\n"), "{text}");
        for app in [WEB, EVERYWHERE] {
            assert!(is_ours(app) && text.contains(&format!("labels: {{ app: {app} }}")), "{app} in {text}");
        }
    }
}
