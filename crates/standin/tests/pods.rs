//! Pods of sandbox nodes: a Deployment that the genuine scheduler places, evictions that a genuine PodDisruptionBudget refuses and allows,
//! and pods that survive a stop and come back after the kill-all script. One test, because a cluster takes half a gigabyte of memory.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;

use std::fs;
use std::time::Duration;

use node::kubectl::Kubectl;
use node::{Node, Rke2, components, succeeded};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const START: Duration = Duration::from_secs(60);
/// The disruption controller and the replica set controller react within seconds.
const SOON: Duration = Duration::from_secs(30);
const APP: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      nodeSelector: { pool: work }
      containers: [{ name: web, image: docker.io/stand-in/busybox, command: [sleep, infinity] }]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: web }
spec: { minAvailable: 2, selector: { matchLabels: { app: web } } }
";

struct Cluster<'a> {
    kubectl: Kubectl<'a>,
    nodes: [Node; 2],
}

impl Cluster<'_> {
    /// Name, node and restarts of the pods that are not being deleted and are Ready.
    fn ready_pods(&self) -> Vec<(String, String, u64)> {
        let list: Value =
            serde_json::from_str(&self.kubectl.run(&["get", "pods", "-l", "app=web", "-o", "json"])).unwrap();
        let text =
            |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            pod["metadata"].get("deletionTimestamp").is_none()
                && conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        let pods = list["items"].as_array().unwrap().iter().filter(is_ready);
        pods.map(|pod| {
            let restarts = pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_u64).unwrap();
            (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"), restarts)
        })
        .collect()
    }

    fn allows_disruptions(&self) -> String {
        self.kubectl.run(&["get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}"])
    }

    fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).unwrap()
    }

    /// Processes of pods, from the process table.
    fn processes(&self) -> usize {
        self.nodes.iter().map(|node| shims(node).len()).sum()
    }
}

fn shims(node: &Node) -> Vec<i32> {
    node.components().into_iter().filter(|(name, _)| name == "containerd-shim-stand-in").map(|(_, pid)| pid).collect()
}

fn agent(server: &Node, list: &Value, name: &str) -> (Node, Rke2) {
    let agent = Node::new(name, list);
    let token = server.read("var/lib/rancher/rke2/server/node-token");
    agent.configure(&format!("server: https://{}:9345\ntoken: {token}\nnode-label: [pool=work]", server.address));
    let running = agent.start("agent");
    assert!(agent.is_ready_within(START), "no READY=1 of {name}");
    (agent, running)
}

#[test]
fn pods_are_drained_by_genuine_budgets_and_survive_a_stop() {
    let (programs, list) = components();
    let server = Node::new("s1", &list);
    server.configure("");
    let server_running = server.start("server");
    assert!(server.is_ready_within(START), "no READY=1");
    let kubectl = Kubectl::new(&server, &programs);
    let ((a1, first), (a2, second)) = (agent(&server, &list, "a1"), agent(&server, &list, "a2"));
    let cluster = Cluster { kubectl, nodes: [a1, a2] };
    cluster.kubectl.wait_ready("a1");
    cluster.kubectl.wait_ready("a2");
    cluster.kubectl.apply(APP);
    node::until(SOON, "both pods are Ready", || cluster.ready_pods().len() == 2);
    assert_eq!(cluster.processes(), 2);

    drain_is_blocked_by_the_budget_and_then_yields(&cluster);
    a_process_that_ends_makes_its_pod_unready_and_is_restarted(&cluster);
    let first = stop_leaves_pods_and_killall_ends_them(&cluster, first);
    a_deleted_pod_ends(&cluster);

    for running in [first, second, server_running] {
        assert!(running.stop().success());
    }
}

fn drain_is_blocked_by_the_budget_and_then_yields(cluster: &Cluster<'_>) {
    let kubectl = &cluster.kubectl;
    node::until(SOON, "the budget has counted", || cluster.allows_disruptions() == "0");
    let from = cluster.ready_pods()[0].1.clone();
    let refused = kubectl.fails(&["drain", &from, "--ignore-daemonsets", "--timeout=3s"]);
    assert!(refused.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{refused}");
    assert_eq!(cluster.ready_pods().len(), 2, "no pod was evicted");
    kubectl.run(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"minAvailable":1}}"#]);
    kubectl.run(&["drain", &from, "--ignore-daemonsets", "--timeout=60s"]);
    node::until(SOON, "the replacement is Ready on another node", || {
        let pods = cluster.ready_pods();
        pods.len() == 2 && pods.iter().all(|pod| pod.1 != from)
    });
    assert_eq!(shims(cluster.node(&from)), [0; 0], "no process is left on the drained node");
    kubectl.run(&["uncordon", &from]);
}

fn a_process_that_ends_makes_its_pod_unready_and_is_restarted(cluster: &Cluster<'_>) {
    let busy = cluster.ready_pods()[0].1.clone();
    let pid = shims(cluster.node(&busy))[0];
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    node::until(SOON, "the pod is not Ready", || cluster.ready_pods().len() == 1);
    node::until(SOON, "the budget allows no disruption", || cluster.allows_disruptions() == "0");
    node::until(SOON, "the pod was restarted", || cluster.ready_pods().iter().any(|pod| pod.2 == 1));
    assert_eq!(cluster.processes(), 2);
}

fn stop_leaves_pods_and_killall_ends_them(cluster: &Cluster<'_>, running: Rke2) -> Rke2 {
    // Both pods to the first node, whose unit is stopped.
    let node = cluster.node("a1");
    cluster.kubectl.run(&["drain", "a2", "--ignore-daemonsets", "--timeout=60s"]);
    node::until(SOON, "both pods run on a1", || {
        let pods = cluster.ready_pods();
        pods.len() == 2 && pods.iter().all(|pod| pod.1 == "a1") && shims(node).len() == 2
    });
    let before = shims(node);
    let restarts = |pods: &[(String, String, u64)]| pods.iter().map(|pod| pod.2).collect::<Vec<_>>();
    let counted = restarts(&cluster.ready_pods());
    assert!(running.stop().success());
    assert_eq!(shims(node), before, "a stop leaves pods");
    let running = node.start("agent");
    assert!(node.is_ready_within(START));
    assert_eq!((shims(node), restarts(&cluster.ready_pods())), (before, counted.clone()), "adopted, not restarted");
    assert!(running.stop().success());
    succeeded(&node.command("rke2-killall.sh").output().unwrap());
    assert_eq!(shims(node), [0; 0], "the kill-all script ends pods");
    let running = node.start("agent");
    assert!(node.is_ready_within(START));
    node::until(SOON, "the pods are back, each restarted once", || {
        let more: Vec<u64> = counted.iter().map(|count| count + 1).collect();
        shims(node).len() == 2 && restarts(&cluster.ready_pods()) == more
    });
    cluster.kubectl.run(&["uncordon", "a2"]);
    running
}

fn a_deleted_pod_ends(cluster: &Cluster<'_>) {
    cluster.kubectl.run(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=60s"]);
    node::until(SOON, "no process is left", || cluster.processes() == 0);
    let log = |node: &Node| fs::read_dir(node.path("var/log/pods")).unwrap().count();
    assert!(cluster.nodes.iter().any(|node| log(node) > 0), "pods have logs at the kubelet's path");
}
