//! Two failures in one journal: the order of the table decides, whichever line comes first.

use gpuaas_model::{Code, Lifecycle};

use crate::{AGENT, diagnose, diagnose_failure, failure, ordinary};

/// Two lines, and the code of the first one, which wins.
const CONFLICTS: [(&str, &str, &str, &str); 15] = [
    (
        "a wrapped cause is more than its wrapper",
        "rke2_node_password_rejected",
        "Waiting to retrieve agent configuration; server is not ready: Node password rejected",
        "Waiting to retrieve agent configuration; server is not ready: EOF",
    ),
    (
        "a wrong clock makes a token look wrong",
        "rke2_clock_skew",
        "x509: certificate has expired or is not yet valid: current time 2026-01-02 is before 2026-11-02",
        "token CA hash does not match the Cluster CA certificate hash: 8f != 55",
    ),
    (
        "a wrong token is more than an unreachable server",
        "rke2_token_ca_mismatch",
        "token CA hash does not match the Cluster CA certificate hash: 8f != 55",
        "Failed to validate connection to cluster at https://192.0.2.1:9345: EOF",
    ),
    (
        "the data came first, the comparison of files follows from it",
        "rke2_bootstrap_token_mismatch",
        "bootstrap data already found and encrypted with different token",
        "tls/client-ca.crt newer than datastore and could cause an outage",
    ),
    (
        "a full database slows etcd",
        "rke2_etcd_out_of_space",
        "etcdserver: mvcc: database space exceeded",
        "slow fdatasync\",\"took\":\"7.4s",
    ),
    (
        "overlayfs is why the operation is not permitted",
        "rke2_overlayfs_refused",
        "\"overlayfs\" snapshotter cannot be enabled for \"/var/lib/rancher\"",
        "mount: operation not permitted",
    ),
    (
        "the kubelet ends without its cgroup",
        "rke2_memory_cgroup_missing",
        "failed to find memory cgroup (v2)",
        "Kubelet exited: exit status 1",
    ),
    (
        "a forbidden program cannot run the kubelet",
        "rke2_exec_forbidden",
        "fork/exec /var/lib/rancher/rke2/data/v1/bin/kubelet: operation not permitted",
        "Kubelet exited: exit status 1",
    ),
    (
        "deleted images cannot be pulled",
        "rke2_images_evicted",
        "attempting to delete unused images",
        "Error syncing pod: ImagePullBackOff",
    ),
    (
        "a failed pull contains the error of the network",
        "rke2_image_missing",
        "failed to pull and unpack image \"docker.io/rancher/x\": connect: no route to host",
        "dial tcp 10.42.0.3:53: connect: no route to host",
    ),
    (
        "the runtime image comes before all others",
        "rke2_runtime_image_unavailable",
        "failed to get runtime image index.docker.io/rancher/rke2-runtime:v1",
        "Failed to pull image \"rancher/hardened-etcd:v3\"",
    ),
    (
        "the server's port is more than other routes",
        "rke2_server_unreachable",
        "failed to get CA certs: Get \"https://127.0.0.1:6444/cacerts\": connect: no route to host",
        "dial tcp 192.0.2.2:10250: connect: no route to host",
    ),
    (
        "a slow disk delays the readiness of etcd",
        "rke2_etcd_slow",
        "slow fdatasync\",\"took\":\"7.4s",
        "Waiting for etcd server to become available",
    ),
    (
        "the earlier apiserver keeps readyz at 500",
        "rke2_apiserver_outdated",
        "kube-apiserver pod not found, retrying",
        "https://127.0.0.1:9345/v1-rke2/readyz: 500 Internal Server Error",
    ),
    (
        "a taken port is why etcd does not start",
        "rke2_address_in_use",
        "listen tcp 0.0.0.0:9345: bind: address already in use",
        "Waiting for etcd server to become available",
    ),
];

#[test]
fn order_of_the_table_decides_between_two_failures() {
    for (why, code, first, second) in CONFLICTS {
        for lines in [[first, second], [second, first]] {
            let mut journal = ordinary::lines(4, 60);
            journal.extend(lines.iter().map(|text| format!("time=\"x\" level=info msg={text:?}")));
            journal.extend(ordinary::lines(5, 60));
            let fault = diagnose(AGENT, Lifecycle::Running, &journal);
            assert_eq!(fault.code, code, "{why}: {:?}", fault.evidence);
        }
    }
}

#[test]
fn cause_in_the_log_of_the_kubelet_is_the_evidence() {
    let cause = "kubelet.log: E1102 run.go:74] \"command failed\" err=\"unrecognized feature gate: Old\"";
    let lines = [
        cause,
        "level=error msg=\"Kubelet exited: exit status 1\"",
        "level=error msg=\"Kubelet exited: exit status 1\"",
    ];
    let fault = diagnose(AGENT, Lifecycle::Running, &lines);
    assert_eq!((fault.code.as_str(), fault.evidence.expect("evidence").text.as_str()), ("rke2_kubelet_exited", cause));
}

#[test]
fn same_port_is_a_reset_only_while_one_runs() {
    let port = "level=fatal msg=\"listen tcp 127.0.0.1:6444: bind: address already in use\"";
    let (reset, start) = ("level=info msg=\"cluster-reset=true\"", "level=info msg=\"Starting rke2 v1.36.3+rke2r1\"");
    let code = |lines: &[&str]| diagnose(AGENT, Lifecycle::Running, lines).code;
    assert_eq!(code(&[port]), "rke2_address_in_use");
    assert_eq!(code(&[reset, port]), "rke2_cluster_reset_failed");
    assert_eq!(code(&[reset, port, start, port]), "rke2_address_in_use", "the reset has passed");
    assert_eq!(code(&[reset, port, start]), "rke2_not_ready");
    assert_eq!(code(&[reset, start, port]), "rke2_address_in_use");
}

#[test]
fn unknown_ca_that_ended_the_wait_is_more_than_an_unreachable_server() {
    let line = "level=error msg=\"CA cert validation failed: Get https://127.0.0.1:6444/cacerts: x509: certificate signed by unknown authority\"";
    let code = |times| diagnose_failure(AGENT, Lifecycle::Running, &failure(Code::HostFailed, &vec![line; times])).code;
    assert_eq!(code(15), "rke2_ca_of_earlier_cluster");
    assert_eq!(code(9), "rke2_server_unreachable");
}
