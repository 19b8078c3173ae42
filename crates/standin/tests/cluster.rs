//! The life of a cluster of one server and one agent: from start to two Ready KubeNodes to uninstall. Checked with kubectl and
//! the apiserver's audit log. One test, because a cluster takes half a gigabyte of memory.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use node::kubectl::Kubectl;
use node::{Node, Rke2, components, succeeded};
use serde_json::Value;

const START: Duration = Duration::from_secs(60);
const CORE: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

#[test]
fn cluster_starts_survives_a_stop_and_is_uninstalled() {
    let (programs, list) = components();
    let (server, agent) = (Node::new("s1", &list), Node::new("a1", &list));
    let began = Instant::now();
    server.configure("tls-san: [cluster.example]");
    let mut running = server.start("server");
    assert!(server.is_ready_within(START), "no READY=1");
    let ready = began.elapsed();
    check_log_order(&mut running);
    check_file_modes(&server);
    let kubectl = Kubectl::new(&server, &programs);
    kubectl.wait_ready("s1");
    let node_ready = began.elapsed();

    let joining = Instant::now();
    let token = server.read("var/lib/rancher/rke2/server/node-token");
    agent.configure(&format!("server: https://{}:9345\ntoken: {token}\nnode-label: [rack=b12]", server.address));
    let agent_running = agent.start("agent");
    assert!(agent.is_ready_within(START), "no READY=1 of the agent");
    let joined = joining.elapsed();
    kubectl.wait_ready("a1");
    eprintln!(
        "server READY {ready:?}, server Ready {node_ready:?}, agent READY {joined:?}, agent Ready {:?}",
        joining.elapsed()
    );
    print_memory(&server, &[running.pid(), agent_running.pid()]);

    check_node_objects(&kubectl, &server, &agent);
    check_nodes_registered_themselves(&server);
    check_anonymous_requests_are_refused(&kubectl, &server);
    a_node_joins_at_a_registration_address(&server, &list, &kubectl, &token);
    a_node_with_another_password_is_rejected(&server, &list, &token);
    let agent_running = a_deleted_node_comes_back_only_by_a_restart(&kubectl, &agent, agent_running);
    stop_leaves_the_cluster_and_start_adopts_it(&server, running, &kubectl);
    a_server_with_another_password_waits_until_the_secret_is_gone(&server, &kubectl);
    killall_ends_all_and_keeps_the_data(&server, &is_agent_running(&agent));
    uninstall_leaves_only_the_counters(&server);
    assert!(agent_running.stop().success());
}

fn is_agent_running(agent: &Node) -> impl Fn() -> bool + '_ {
    || agent.listens(10250)
}

fn check_log_order(running: &mut Rke2) {
    for text in [
        "not running in CIS mode",
        "Starting rke2 v1.36.3+rke2r1 (",
        "Managed etcd cluster initializing",
        "Server node token is available at /var/lib/rancher/rke2/server/token",
        "Wrote kubeconfig /etc/rancher/rke2/rke2.yaml",
        "Waiting for API server to become available",
        "Kube API server is now running",
        "ETCD server is now running",
        "rke2 is up and running",
    ] {
        running.line(text, Duration::from_secs(1));
    }
}

fn check_file_modes(server: &Node) {
    let mode = |path: &str| fs::metadata(server.path(path)).unwrap().permissions().mode() & 0o777;
    for path in [
        "var/lib/rancher/rke2/server/token",
        "etc/rancher/rke2/rke2.yaml",
        "etc/rancher/rke2/rke2-pss.yaml",
        "etc/rancher/node/password",
        "var/lib/rancher/rke2/server/tls/server-ca.key",
        "var/lib/rancher/rke2/server/cred/passwd",
    ] {
        assert_eq!(mode(path), 0o600, "{path}");
    }
    assert_eq!(mode("var/lib/rancher/rke2/agent/logs"), 0o750);
    assert_eq!(mode("var/lib/rancher/rke2/agent/pod-manifests/etcd.yaml"), 0o644);
    let link = |path: &str| fs::read_link(server.path(path)).unwrap().to_string_lossy().into_owned();
    assert_eq!(link("var/lib/rancher/rke2/server/node-token"), "token");
    assert!(link("var/lib/rancher/rke2/bin").starts_with("data/v1.36.3-rke2r1-"));
    let password = server.read("etc/rancher/node/password");
    assert!(password.len() == 33 && password.ends_with('\n'), "32 hex characters and a newline");
}

fn check_node_objects(kubectl: &Kubectl<'_>, server: &Node, agent: &Node) {
    let list: Value = serde_json::from_str(&kubectl.run(&["get", "nodes", "-o", "json"])).unwrap();
    let nodes = list["items"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    for (node, own) in nodes.iter().map(|node| (node, if node["metadata"]["name"] == "s1" { server } else { agent })) {
        let info = &node["status"]["nodeInfo"];
        assert_eq!(info["kubeletVersion"], "v1.36.3+rke2r1");
        assert!(info["containerRuntimeVersion"].as_str().unwrap().starts_with("stand-in://"));
        assert_eq!(node["status"]["addresses"][0]["address"], own.address.as_str());
        assert!(!node["metadata"]["annotations"]["rke2.io/node-args"].as_str().unwrap().contains("K10"), "no token");
    }
    let shown = kubectl.run(&["get", "nodes", "-l", "rack=b12", "-o", "name"]);
    assert_eq!(shown.trim(), "node/a1");
    kubectl.run(&[
        "wait",
        "--for=jsonpath={.metadata.labels.node-role\\.kubernetes\\.io/etcd}=true",
        "node/s1",
        "--timeout=20s",
    ]);
    let roles = kubectl.run(&["get", "nodes", "--no-headers"]);
    assert!(roles.lines().any(|l| l.starts_with("s1 ") && l.contains("control-plane,etcd,master")), "{roles}");
    assert!(roles.lines().any(|l| l.starts_with("a1 ") && l.contains("<none>")), "{roles}");
}

/// Checks in the apiserver's audit log that each KubeNode and each Lease was created with that node's certificate.
fn check_nodes_registered_themselves(server: &Node) {
    let audit = server.read("var/lib/rancher/rke2/server/logs/audit.log");
    let events: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for name in ["s1", "a1"] {
        for resource in ["nodes", "leases"] {
            let creators: Vec<&str> = events
                .iter()
                .filter(|e| e["verb"] == "create" && e["responseStatus"]["code"] == 201)
                .filter(|e| e["objectRef"]["resource"] == resource)
                .filter(|e| e["objectRef"]["name"] == name)
                .map(|e| e["user"]["username"].as_str().unwrap())
                .collect();
            assert_eq!(creators, [format!("system:node:{name}")], "{resource} of {name}");
        }
    }
}

fn check_anonymous_requests_are_refused(kubectl: &Kubectl<'_>, server: &Node) {
    let ask = |port: u16, path: &str, password: Option<&str>| {
        let mut command = Command::new(kubectl.programs.join("kubectl"));
        command.args(["--kubeconfig", "/dev/null", "--insecure-skip-tls-verify", "get", "--raw", path]);
        command.arg(format!("--server=https://{}:{port}", server.address)).stdin(std::process::Stdio::null());
        if let Some(password) = password {
            command.args(["--username=node", &format!("--password={password}")]);
        } else {
            // Without credentials kubectl prompts for them; an unknown bearer token has the same effect as none.
            command.arg("--token=nobody");
        }
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(ask(9345, "/ping", None), "pong");
    assert!(ask(9345, "/cacerts", None).starts_with("-----BEGIN CERTIFICATE-----"));
    for (port, path, password, refusal) in [
        (9345, "/v1-rke2/readyz", None, "forbidden"),
        (9345, "/v1-rke2/client-kubelet.crt", None, "forbidden"),
        (9345, "/v1-rke2/no-such-path", None, "forbidden"),
        (9345, "/v1-rke2/readyz", Some("wrong"), "not authorized"),
        (6443, "/readyz", None, "Unauthorized"),
        (10250, "/healthz", None, "Unauthorized"),
    ] {
        let answer = ask(port, path, password);
        assert!(answer.contains(refusal) || answer.contains("must be logged in"), "{port}{path}: {answer}");
    }
    let token = server.read("var/lib/rancher/rke2/server/token");
    assert_eq!(ask(9345, "/v1-rke2/readyz", token.trim().rsplit(':').next()), "ok");
}

/// Joins by a DNS name and port other than the server's. Only the join uses them; the node gets the apiserver's address from the
/// supervisor.
fn a_node_joins_at_a_registration_address(server: &Node, list: &Value, kubectl: &Kubectl<'_>, token: &str) {
    let port = node::forward_to(format!("{}:9345", server.address));
    let agent = Node::new("a2", list);
    agent.configure(&format!("server: https://localhost:{port}\ntoken: {token}"));
    let running = agent.start("agent");
    assert!(agent.is_ready_within(START), "no READY=1 of the agent");
    kubectl.wait_ready("a2");
    let kubeconfig = agent.read("var/lib/rancher/rke2/agent/kubelet.kubeconfig");
    assert!(kubeconfig.contains(&format!("https://{}:6443", server.address)), "{kubeconfig}");
    assert!(running.stop().success());
    kubectl.run(&["delete", "node", "a2"]);
}

fn a_node_with_another_password_is_rejected(server: &Node, list: &Value, token: &str) {
    let double = Node::new("a1", list);
    double.configure(&format!("server: https://{}:9345\ntoken: {token}", server.address));
    let mut running = double.start("agent");
    running.line(
        "server is not ready: Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not \
         match server node-passwd entry, try enabling a unique node name with the --with-node-id flag",
        START,
    );
    assert!(running.is_running());
    assert!(running.stop().success());
}

/// The deletion frees the name, and the running kubelet does not register again. A restart does, without the cordon and with a new Secret.
fn a_deleted_node_comes_back_only_by_a_restart(kubectl: &Kubectl<'_>, agent: &Node, mut running: Rke2) -> Rke2 {
    kubectl.run(&["cordon", "a1"]);
    kubectl.run(&["delete", "node", "a1"]);
    kubectl.run(&["wait", "--for=delete", "-n", "kube-system", "secret/a1.node-password.rke2", "--timeout=60s"]);
    // The kubelet has noticed the deletion and still runs.
    running.line("nodes \\\"a1\\\" not found", Duration::from_secs(20));
    assert!(running.is_running() && !kubectl.run(&["get", "nodes", "-o", "name"]).contains("node/a1"));
    assert!(running.stop().success());
    let running = agent.start("agent");
    assert!(agent.is_ready_within(START), "no READY=1 of the agent");
    kubectl.wait_ready("a1");
    assert_eq!(kubectl.run(&["get", "node", "a1", "-o", "jsonpath={.spec.unschedulable}"]), "");
    let owner = "jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name} {.immutable}";
    let secret = || kubectl.run(&["get", "secret", "-n", "kube-system", "a1.node-password.rke2", "-o", owner]);
    node::until(Duration::from_secs(10), "the Secret has an owner", || secret() == "Node/a1 true");
    running
}

fn stop_leaves_the_cluster_and_start_adopts_it(server: &Node, running: Rke2, kubectl: &Kubectl<'_>) {
    let before = server.components();
    assert_eq!(before.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), CORE);
    assert!(running.stop().success());
    assert!(!server.listens(9345) && !server.listens(10250), "the program's own ports are closed");
    assert_eq!(server.components(), before);
    assert_eq!(kubectl.run(&["get", "--raw", "/readyz"]), "ok");
    let again = server.start("server");
    assert!(server.is_ready_within(START));
    assert_eq!(server.components(), before, "adopted, not started a second time");
    assert!(again.stop().success());
    server.configure("tls-san: [cluster.example]\nkube-scheduler-arg: [v=1]");
    let mut again = server.start("server");
    again.line("Replacing kube-scheduler", START);
    assert!(server.is_ready_within(START));
    let after = server.components();
    assert_eq!((&after[..3], after.len()), (&before[..3], 4), "only the changed component is replaced");
    assert_ne!(after[3], before[3]);
    assert!(again.stop().success());
}

/// A server's agent part is rejected as an agent is. Its apiserver runs, and the deletion of the Secret cures it without a restart.
fn a_server_with_another_password_waits_until_the_secret_is_gone(server: &Node, kubectl: &Kubectl<'_>) {
    fs::write(server.path("etc/rancher/node/password"), format!("{}\n", "0".repeat(32))).unwrap();
    let mut running = server.start("server");
    let line = running.line("server is not ready: Node password rejected", START);
    assert!(line.contains("level=info "), "{line}");
    assert!(running.is_running() && !server.is_ready_within(Duration::from_millis(1)));
    kubectl.run(&["delete", "secret", "-n", "kube-system", "s1.node-password.rke2"]);
    assert!(server.is_ready_within(START), "cured");
    // The KubeNode exists already and becomes the owner at once.
    let owner = "jsonpath={.metadata.ownerReferences[0].name}";
    assert_eq!(kubectl.run(&["get", "secret", "-n", "kube-system", "s1.node-password.rke2", "-o", owner]), "s1");
    assert!(running.stop().success());
}

fn killall_ends_all_and_keeps_the_data(server: &Node, agent_lives: &dyn Fn() -> bool) {
    let began = Instant::now();
    succeeded(&server.command("rke2-killall.sh").output().unwrap());
    eprintln!("killall took {:?}", began.elapsed());
    assert_eq!(server.components(), []);
    assert!(agent_lives(), "the processes of another node keep running");
    assert!(!server.path("var/lib/rancher/rke2/agent/pod-manifests/etcd.yaml").exists());
    let began = Instant::now();
    let running = server.start("server");
    assert!(server.is_ready_within(START), "the data were kept");
    eprintln!("READY again after killall in {:?}", began.elapsed());
    assert!(running.stop().success());
}

fn uninstall_leaves_only_the_counters(server: &Node) {
    succeeded(&server.command("rke2-uninstall.sh").output().unwrap());
    assert_eq!(server.components(), []);
    for gone in [
        "etc/rancher",
        "var/lib/rancher",
        "var/lib/kubelet",
        "var/log/pods",
        "usr/local/bin/rke2",
        "usr/local/bin/rke2-uninstall.sh",
    ] {
        assert!(!server.path(gone).exists(), "{gone}");
    }
    assert!(server.path("run/k3s").exists(), "RKE2 leaves it until the next boot too");
    assert!(server.read("var/lib/stand-in/counters.jsonl").lines().count() >= 6);
}

fn print_memory(server: &Node, own: &[i32]) {
    let resident = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|l| l.strip_prefix("VmRSS:")).map(|l| l.trim().to_owned()).unwrap_or_default()
    };
    let named = server.components().into_iter().map(|(name, pid)| format!("{name} {}", resident(pid)));
    let own = own.iter().map(|pid| format!("rke2 {}", resident(*pid)));
    eprintln!("resident: {}", named.chain(own).collect::<Vec<_>>().join(", "));
}
