//! Failures of the stand-in: it logs RKE2's texts, and exits or retries where RKE2 does.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod node;

use std::time::Duration;

use node::{Node, Rke2};

const SOON: Duration = Duration::from_secs(10);
/// Long enough for a second attempt in every retry loop.
const ROUNDS: Duration = Duration::from_secs(25);

/// A server whose supervisor listens but whose etcd never becomes ready, for failing joins.
fn half_a_server() -> (Node, Rke2) {
    let server = Node::new("s1", &node::no_components());
    server.configure("");
    server.fault("etcd-never-ready");
    let mut running = server.start("server");
    running.line("Waiting for etcd server to become available", SOON);
    (server, running)
}

fn agent(server: &Node, token: &str) -> Node {
    let agent = Node::new("a1", &node::no_components());
    agent.configure(&format!("server: https://{}:9345\ntoken: {token}", server.address));
    agent
}

fn token(server: &Node) -> String {
    server.read("var/lib/rancher/rke2/server/token").trim().to_owned()
}

/// Checks that the line is logged again and again; `level` is RKE2's.
fn loops_with(mut running: Rke2, level: &str, text: &str) {
    let first = running.line(text, SOON);
    assert!(first.contains(&format!("level={level} ")), "{first}");
    running.line(text, ROUNDS);
    assert!(running.is_running(), "an agent that cannot join does not exit");
    assert!(running.stop().success());
}

#[test]
fn an_agent_with_a_token_of_another_cluster_loops_with_both_hashes() {
    let (server, running) = half_a_server();
    let right = token(&server);
    let wrong = format!("K10{}{}", "0".repeat(64), &right[67..]);
    let text = format!(
        "Failed to validate connection to cluster at https://127.0.0.1:6444: token CA hash does not match the Cluster CA \
         certificate hash: {} != {}",
        "0".repeat(64),
        &right[3..67]
    );
    loops_with(agent(&server, &wrong).start("agent"), "error", &text);
    assert!(running.stop().success());
}

#[test]
fn an_agent_with_a_wrong_password_waits_with_401() {
    let (server, running) = half_a_server();
    let wrong = format!("{}x", token(&server));
    loops_with(
        agent(&server, &wrong).start("agent"),
        "info",
        "Waiting to retrieve agent configuration; server is not ready: failed to retrieve configuration from server: \
         https://127.0.0.1:6444/v1-rke2/config: 401 Unauthorized",
    );
    assert!(running.stop().success());
}

#[test]
fn an_agent_of_a_server_that_is_not_ready_waits_with_503() {
    let (server, running) = half_a_server();
    let right = token(&server);
    loops_with(agent(&server, &right).start("agent"), "info", "/v1-rke2/readyz: 503 Service Unavailable");
    assert!(running.stop().success());
}

#[test]
fn agent_without_a_server_loops_and_never_reports_ready() {
    let agent = Node::new("a1", &node::no_components());
    agent.configure("server: https://127.63.0.1:9345\ntoken: secret");
    let running = agent.start("agent");
    loops_with(
        running,
        "error",
        "Failed to validate connection to cluster at https://127.0.0.1:6444: failed to get CA certs: Get \\\"https://",
    );
    assert!(!agent.is_ready_within(Duration::from_millis(1)));
}

#[test]
fn exit_at_once_fault_logs_a_fatal_line_and_is_counted() {
    let server = Node::new("s1", &node::no_components());
    server.configure("");
    server.fault("exit-at-once");
    let mut running = server.start("server");
    running.line("level=fatal msg=\"starting kubernetes: preparing server: stand-in fault exit-at-once\"", SOON);
    assert_eq!(running.wait().code(), Some(1));
    let counters = server.read("var/lib/stand-in/counters.jsonl");
    let events: Vec<serde_json::Value> = counters.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.iter().map(|e| e["event"].as_str().unwrap()).collect::<Vec<_>>(), ["start", "exit"]);
}

#[test]
fn a_taken_supervisor_port_is_named() {
    let server = Node::new("s1", &node::no_components());
    server.configure("");
    let _taken = std::net::TcpListener::bind((server.address.as_str(), 9345)).unwrap();
    let mut running = server.start("server");
    running.line(&format!("listen tcp {}:9345: bind: address already in use", server.address), SOON);
    assert_eq!(running.wait().code(), Some(1));
}

#[test]
fn another_token_over_existing_data_is_refused() {
    let (server, running) = half_a_server();
    assert!(running.stop().success());
    server.configure("token: another");
    let mut running = server.start("server");
    running.line("bootstrap data already found and encrypted with different token", SOON);
    assert_eq!(running.wait().code(), Some(1));
}

#[test]
fn unknown_key_is_only_a_warning() {
    let server = Node::new("s1", &node::no_components());
    server.configure("cluster-init: true");
    server.fault("etcd-never-ready");
    let mut running = server.start("server");
    running.line("level=warning msg=\"Unknown flag --cluster-init found in config.yaml, skipping\"", SOON);
    running.line("Waiting for etcd server to become available", SOON);
    assert!(running.stop().success());
}

/// A server that ignored the option and started normally would look like one that was reset.
#[test]
fn cluster_reset_is_refused_as_option_key_and_variable() {
    type Invocation<'a> = (&'a [&'a str], &'a str, &'a [(&'a str, &'a str)]);
    let invocations: [Invocation<'_>; 3] = [
        (&["server", "--cluster-reset"], "", &[]),
        (&["server"], "cluster-reset: true", &[]),
        (&["server"], "", &[("RKE2_CLUSTER_RESET", "true")]),
    ];
    for (arguments, config, variables) in invocations {
        let server = Node::new("s1", &node::no_components());
        server.configure(config);
        server.fault("etcd-never-ready");
        let mut running = server.start_with(arguments, variables);
        running.line("level=fatal msg=\"the stand-in has no cluster reset", SOON);
        assert_eq!(running.wait().code(), Some(1));
        assert!(!server.path("var/lib/rancher/rke2/server/db").exists(), "the server was not started");
    }
}

#[test]
fn agent_takes_server_and_token_from_variables() {
    let (server, running) = half_a_server();
    let agent = Node::new("a1", &node::no_components());
    agent.configure("");
    let (url, token) = (format!("https://{}:9345", server.address), token(&server));
    let variables = [("RKE2_URL", url.as_str()), ("RKE2_TOKEN", token.as_str())];
    let mut joining = agent.start_with(&["agent"], &variables);
    // The agent has reached the server, which accepted its token.
    joining.line("/v1-rke2/readyz: 503 Service Unavailable", SOON);
    assert!(joining.stop().success());
    assert!(running.stop().success());
}

#[test]
fn config_file_variable_has_precedence_and_others_do_not() {
    let server = Node::new("s1", &node::no_components());
    server.configure("");
    server.fault("etcd-never-ready");
    for other in ["srv/other", "srv/third"] {
        std::fs::create_dir_all(server.path(other).join("agent")).unwrap();
        let images = server.path("var/lib/rancher/rke2/agent/images");
        std::os::unix::fs::symlink(images, server.path(other).join("agent/images")).unwrap();
    }
    let config = std::fs::read_to_string(server.path("etc/rancher/rke2/config.yaml")).unwrap();
    std::fs::write(server.path("etc/other.yaml"), format!("{config}data-dir: /srv/other\n")).unwrap();
    // Starts a server and checks in which data directory it writes its token.
    let check_data_dir = |arguments: &[&str], variables: &[(&str, &str)], folder: &str| {
        let mut running = server.start_with(arguments, variables);
        running.line("Waiting for etcd server to become available", SOON);
        assert!(running.stop().success());
        let token = server.path(folder).join("server/token");
        assert!(token.exists(), "{folder} has no token");
        std::fs::remove_file(token).unwrap();
    };
    let arguments = ["server", "--config", "/etc/rancher/rke2/config.yaml"];
    check_data_dir(&arguments, &[("RKE2_CONFIG_FILE", "/etc/other.yaml")], "srv/other");
    check_data_dir(&arguments, &[("RKE2_DATA_DIR", "/srv/third")], "srv/third");
    // The file overrides the variable.
    server.configure("data-dir: /srv/other");
    check_data_dir(&["server"], &[("RKE2_DATA_DIR", "/srv/third")], "srv/other");
}

#[test]
fn version_has_two_lines_and_names_the_stand_in() {
    let server = Node::new("s1", &node::no_components());
    let shown = node::succeeded(&server.command("rke2").arg("--version").output().unwrap());
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("rke2 version v1.36.3+rke2r1 (stand-in"), "{shown}");
    assert!(lines[1].starts_with("go version go"), "{shown}");
}
