//! Every fault switch: its text is logged with RKE2's level, among ordinary lines, and the program exits, waits or fails later as the table
//! in `docs/stand-in.md` says. Without its name in the file, the next start is healthy.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use node::kubectl::Kubectl;
use node::{Node, Rke2, components, no_components};

/// A cluster and ten other processes start at once on two cores.
const START: Duration = Duration::from_secs(90);
/// Long enough for a second round of every repeated line.
const ROUNDS: Duration = Duration::from_secs(60);
const DOCUMENT: &str = include_str!("../../../docs/stand-in.md");

/// What a fault does before its node has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Logs the text, exits with status 1.
    Exits,
    /// Logs the text again and again and never reports ready.
    Waits,
}

use Course::{Exits, Waits};

/// Name, role, course, level and text.
type Case = (&'static str, &'static str, Course, &'static str, &'static str);

const BEFORE_THE_JOIN: &[Case] = &[
    (
        "node-password-rejected",
        "server",
        Waits,
        "info",
        "Waiting to retrieve agent configuration; server is not ready: Node password rejected, duplicate",
    ),
    ("duplicate-member-name", "server", Exits, "fatal", "ETCD join failed: duplicate node name found"),
    (
        "server-unreachable",
        "agent",
        Waits,
        "error",
        "failed to get CA certs: Get \\\"https://127.0.0.1:6444/cacerts\\\": EOF",
    ),
    ("ca-mismatch", "agent", Waits, "error", "token CA hash does not match the Cluster CA certificate hash: abab"),
    (
        "bootstrap-token-mismatch",
        "server",
        Exits,
        "fatal",
        "bootstrap data already found and encrypted with different token",
    ),
    ("config-mismatch", "server", Exits, "fatal", "critical configuration value mismatch between servers"),
    ("etcd-never-ready", "server", Waits, "info", "Waiting for etcd server to become available"),
    (
        "second-server-never-ready",
        "server",
        Waits,
        "info",
        "https://127.0.0.1:9345/v1-rke2/readyz: 500 Internal Server Error",
    ),
    ("second-server-never-ready", "server", Waits, "error", "Failed to check local etcd status for learner management"),
    ("not-a-member", "server", Waits, "info", "this server is a not a member of the etcd cluster. Found ["),
    ("cluster-reset-refused", "server", Exits, "fatal", "cannot perform cluster-reset while server URL is set"),
    ("cluster-id-mismatch", "server", Exits, "fatal", "newer than datastore and could cause a cluster outage"),
    (
        "certificate-expired",
        "server",
        Waits,
        "info",
        "x509: certificate has expired or is not yet valid: current time ",
    ),
    ("clock-skew", "agent", Waits, "error", "x509: certificate has expired or is not yet valid: current time "),
    (
        "clock-skew-empty-ca",
        "agent",
        Waits,
        "error",
        " != e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    (
        "address-in-use",
        "server",
        Exits,
        "fatal",
        "starting load balancer: listen tcp 127.0.0.1:6444: bind: address already in use",
    ),
    ("address-in-use", "agent", Exits, "fatal", "msg=\"listen tcp 127.0.0.1:6444: bind: address already in use"),
    ("etcd-out-of-space", "server", Waits, "error", "snapshots for cluster: etcdserver: mvcc: database space exceeded"),
    (
        "images-missing",
        "server",
        Waits,
        "error",
        "Error encountered while importing /var/lib/rancher/rke2/agent/images/etcd-image.txt",
    ),
    (
        "exec-forbidden",
        "agent",
        Exits,
        "error",
        "fork/exec /var/lib/rancher/rke2/bin/containerd: operation not permitted",
    ),
    ("kubelet-exited", "server", Waits, "error", "Kubelet exited: exit status 1"),
    ("apiserver-not-synced", "server", Waits, "info", "Pod for kube-apiserver not synced"),
    ("memory-cgroup-missing", "agent", Exits, "fatal", "failed to find memory cgroup, you may need to add "),
    ("overlayfs-refused", "server", Waits, "info", "\\\"overlayfs\\\" snapshotter cannot be enabled for "),
    ("token-malformed", "server", Exits, "fatal", "failed to normalize token; must be in format K10<CA-HASH>"),
    ("token-malformed", "agent", Exits, "fatal", "failed to normalize token; must be in format K10<CA-HASH>"),
    ("earlier-ca", "agent", Waits, "error", "x509: certificate signed by unknown authority"),
    (
        "runtime-image-cut-off",
        "agent",
        Exits,
        "fatal",
        "failed to get runtime image index.docker.io/rancher/rke2-runtime:v1.36.3-rke2r1",
    ),
    ("exit-at-once", "server", Exits, "fatal", "stand-in fault exit-at-once"),
];

/// Names of the faults of nodes that have joined, which the last test switches on.
const AFTER_THE_JOIN: [&str; 9] = [
    "join-unstable",
    "firewall-rejects",
    "slow-disk",
    "agent-images-missing",
    "images-collected",
    "cni-not-initialized",
    "wrong-interface",
    "never-ready",
    "kubelet-exited",
];

/// A node that cannot reach a server, for faults that strike earlier.
fn lonely(role: &str) -> Node {
    let node = Node::new("n1", &no_components());
    let join = format!("server: https://127.63.0.1:9345\ntoken: K10{}::node:secret", "ab".repeat(32));
    node.configure(if role == "agent" { &join } else { "" });
    node
}

fn check((name, role, course, level, text): Case) {
    let node = lonely(role);
    node.fault(name);
    let mut running = node.start(role);
    let line = running.line(text, START);
    assert!(line.contains(&format!(" level={level} msg=")), "{name}: {line}");
    match course {
        Exits => assert_eq!(running.wait().code(), Some(1), "{name}"),
        Waits => {
            running.line(text, ROUNDS);
            assert!(running.is_running(), "{name} must not end the program");
            assert!(!node.is_ready_within(Duration::from_millis(1)), "{name} reported ready");
            // The lines of the failure stand among others.
            let others = running.seen.iter().filter(|line| !line.contains(text)).count();
            assert!(others >= 3, "{name}: {:?}", running.seen);
            assert!(running.stop().success(), "{name}");
        }
    }
}

#[test]
fn each_fault_before_the_join_has_its_text_and_course() {
    std::thread::scope(|scope| {
        // A few at a time: each server generates its certificates.
        for cases in BEFORE_THE_JOIN.chunks(BEFORE_THE_JOIN.len().div_ceil(4)) {
            scope.spawn(|| cases.iter().copied().for_each(check));
        }
    });
}

/// The names in the first column of the document's table.
fn documented() -> BTreeSet<&'static str> {
    let table = DOCUMENT.split("<!-- faults:").nth(1).unwrap().split("<!-- end of faults").next().unwrap();
    table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn every_documented_fault_is_switched_on_by_a_test() {
    let tested = BEFORE_THE_JOIN.iter().map(|case| case.0).chain(AFTER_THE_JOIN);
    assert_eq!(documented(), tested.collect());
}

#[test]
fn fault_of_the_other_role_and_an_unknown_one_are_refused() {
    for (role, name, text) in [
        ("agent", "etcd-never-ready", "stand-in fault \\\"etcd-never-ready\\\" is for nodes of role server, not agent"),
        ("server", "clock-skew", "stand-in fault \\\"clock-skew\\\" is for nodes of role agent, not server"),
        ("server", "clock-skw", "unknown stand-in fault \\\"clock-skw\\\""),
    ] {
        let node = lonely(role);
        node.fault(name);
        let mut running = node.start(role);
        running.line(text, START);
        assert_eq!(running.wait().code(), Some(1));
    }
}

#[test]
fn next_start_without_the_name_is_free_of_the_fault() {
    let node = lonely("server");
    node.fault("memory-cgroup-missing");
    assert_eq!(node.start("server").wait().code(), Some(1));
    node.fault("# cured\netcd-never-ready");
    let mut running = node.start("server");
    running.line("Waiting for etcd server to become available", START);
    assert!(!running.seen.iter().any(|line| line.contains("memory cgroup")));
    assert!(running.stop().success());
}

#[test]
fn cause_of_an_exited_kubelet_is_in_kubelet_log_only() {
    let node = lonely("server");
    node.fault("kubelet-exited");
    let mut running = node.start("server");
    running.line("Kubelet exited: exit status 1", START);
    running.line("Kubelet exited: exit status 1", ROUNDS);
    assert!(!running.seen.iter().any(|line| line.contains("command failed")), "{:?}", running.seen);
    let log = node.read("var/lib/rancher/rke2/agent/logs/kubelet.log");
    assert!(log.contains("run.go:72] \"command failed\" err=\"failed to parse kubelet flag: unknown flag"), "{log}");
    assert!(running.stop().success());
}

fn joining(server: &Node, list: &serde_json::Value, name: &str, fault: &str) -> (Node, Rke2) {
    let agent = Node::new(name, list);
    let token = server.read("var/lib/rancher/rke2/server/node-token");
    agent.configure(&format!("server: https://{}:9345\ntoken: {token}", server.address));
    agent.fault(fault);
    let running = agent.start("agent");
    (agent, running)
}

/// The kubelet's log; empty before its first line.
fn kubelet_log(node: &Node) -> String {
    fs::read_to_string(node.path("var/lib/rancher/rke2/agent/logs/kubelet.log")).unwrap_or_default()
}

/// One test, because a cluster takes half a gigabyte of memory.
#[test]
fn each_fault_of_a_joined_node_has_its_text_and_course() {
    let (programs, list) = components();
    let server = Node::new("s1", &list);
    server.configure("");
    server.fault("slow-disk");
    let mut server_running = server.start("server");
    assert!(server.is_ready_within(START), "a slow disk does not prevent the start");
    let kubectl = Kubectl::new(&server, &programs);
    let status = |node: &str, kind: &str| {
        let path = format!("jsonpath={{.status.conditions[?(@.type=='{kind}')].status}}");
        kubectl.run(&["get", "node", node, "-o", &path])
    };

    for (name, fault, text) in [
        ("a1", "wrong-interface", "error=\"dial tcp 10.0.2.15:9345: connect: connection refused"),
        ("a2", "kubelet-exited", "level=error msg=\"Kubelet exited: exit status 1\""),
    ] {
        let (agent, mut running) = joining(&server, &list, name, fault);
        running.line(text, START);
        running.line(text, ROUNDS);
        assert!(running.is_running() && !agent.is_ready_within(Duration::from_millis(1)), "{fault}");
        assert!(!kubectl.run(&["get", "nodes", "-o", "name"]).contains(name), "{fault}: no KubeNode");
        assert!(running.stop().success());
    }

    let (agent, running) = joining(&server, &list, "a3", "never-ready");
    kubectl.wait_ready("a3");
    assert!(!agent.is_ready_within(Duration::from_millis(1)));
    assert!(running.stop().success());

    let (agent, mut running) = joining(&server, &list, "a4", "join-unstable\nfirewall-rejects\nimages-collected");
    for _ in 0..3 {
        running.line("read: connection reset by peer", START);
    }
    assert!(agent.is_ready_within(START), "the fourth attempt succeeds");
    running.line("rke2 agent is up and running", START);
    running.line(&format!("error=\"dial tcp {}:9345: connect: no route to host", server.address), START);
    kubectl.wait_ready("a4");
    node::until(START, "the KubeNode has DiskPressure", || status("a4", "DiskPressure") == "True");
    let log = || kubelet_log(&agent);
    node::until(START, "images are removed", || log().contains("Removing image to free bytes"));
    assert!(running.stop().success());

    for (name, fault, in_log) in [
        ("a5", "agent-images-missing", "ImagePullBackOff"),
        ("a6", "cni-not-initialized", "cni plugin not initialized"),
    ] {
        let (agent, running) = joining(&server, &list, name, fault);
        assert!(agent.is_ready_within(START), "{fault}: the unit becomes active");
        let log = || kubelet_log(&agent);
        node::until(START, in_log, || log().contains(in_log));
        node::until(START, "the KubeNode is not Ready", || status(name, "Ready") == "False");
        assert!(running.stop().success());
        // Cured: without the name, the same node becomes Ready.
        fs::remove_file(agent.path("etc/rancher/rke2/stand-in-faults")).unwrap();
        let running = agent.start("agent");
        kubectl.wait_ready(name);
        assert!(running.stop().success());
    }

    server_running.line("rke2 is up and running", START);
    server_running.line("\"msg\":\"apply request took too long\",\"took\":\"2.417310127s\"", START);
    assert!(server_running.stop().success());
}
