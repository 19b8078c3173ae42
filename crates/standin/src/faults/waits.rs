//! Faults before the node has joined: the unit stays `activating`, because the program retries without end.

use super::line::{Line, error, etcd, info, kubelet, warning};
use super::ordinary::ETCD_CLIENT;
use super::switch::{Facts, Script};
use crate::node_password;

/// The address that an agent logs: its own load balancer.
const SHOWN: &str = "https://127.0.0.1:6444";
/// SHA-256 of nothing: the hash of a CA that could not be read.
const HASH_OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn refuses(reason: impl Into<String>) -> Script {
    Script::Refuses(reason.into())
}

fn no_ca(cause: &str) -> Script {
    refuses(format!("failed to get CA certs: Get \"{SHOWN}/cacerts\": {cause}"))
}

fn hash_mismatch(facts: &Facts, actual: &str) -> Script {
    refuses(format!("token CA hash does not match the Cluster CA certificate hash: {} != {actual}", facts.ca_hash))
}

fn unverified(cause: &str) -> Script {
    refuses(format!(
        "CA cert validation failed: Get \"{SHOWN}/cacerts\": tls: failed to verify certificate: x509: {cause}"
    ))
}

/// Now, and a time this many hours away, as x509 errors show them.
fn now_and(hours: i64) -> (String, String) {
    let now = jiff::Timestamp::now();
    // Only times beyond the year 9999 cannot be represented.
    let other = now.checked_add(jiff::Span::new().hours(hours)).unwrap_or(now);
    let show = |at: jiff::Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    (show(now), show(other))
}

pub(super) fn unreachable(_: &Facts) -> Script {
    no_ca("EOF")
}

pub(super) fn ca_mismatch(facts: &Facts) -> Script {
    hash_mismatch(facts, &crate::token::ca_hash("the CA of another cluster"))
}

pub(super) fn empty_ca(facts: &Facts) -> Script {
    hash_mismatch(facts, HASH_OF_NOTHING)
}

pub(super) fn earlier_ca(_: &Facts) -> Script {
    unverified(
        "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" while trying to verify \
         candidate authority certificate \"rke2-server-ca@1753618691\")",
    )
}

pub(super) fn clock(_: &Facts) -> Script {
    let (now, from) = now_and(3);
    unverified(&format!("certificate has expired or is not yet valid: current time {now} is before {from}"))
}

pub(super) fn unstable(facts: &Facts) -> Script {
    no_ca(&format!("read tcp {}:41250->{}: read: connection reset by peer", facts.address, facts.server))
}

pub(super) fn node_password(_: &Facts) -> Script {
    refuses(node_password::REJECTED)
}

pub(super) fn expired(_: &Facts) -> Script {
    let (now, until) = now_and(-24);
    refuses(format!(
        "failed to retrieve configuration from server: Get \"{SHOWN}/v1-rke2/config\": tls: failed to verify certificate: x509: \
         certificate has expired or is not yet valid: current time {now} is after {until}"
    ))
}

pub(super) fn overlayfs(facts: &Facts) -> Script {
    refuses(format!(
        "\"overlayfs\" snapshotter cannot be enabled for \"{}/agent/containerd\", try using \"fuse-overlayfs\" or \"native\": failed to \
         mount overlay: operation not permitted",
        facts.data_dir
    ))
}

pub(super) fn etcd_waits(_: &Facts) -> Script {
    Script::Repeats(vec![info("Waiting for etcd server to become available")])
}

/// What a second server logs that never becomes one: the ordinary lines of a start, for ever, and etcd's own.
pub(super) fn second_server(_: &Facts) -> Script {
    Script::Repeats(vec![
        info("Container for etcd not found (no matching container found), retrying"),
        info("Failed to test data store connection: failed to get etcd status: context deadline exceeded"),
        etcd(format!(
            "{ETCD_CLIENT},\"error\":\"rpc error: code = DeadlineExceeded desc = latest balancer error: last connection error: connection \
             error: desc = \\\"transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused\\\"\""
        )),
        error("Failed to check local etcd status for learner management: context deadline exceeded"),
        warning("Failed to list nodes with etcd role: runtime core not ready"),
    ])
}

pub(super) fn not_a_member(facts: &Facts) -> Script {
    let (name, address) = (&facts.node_name, &facts.address);
    Script::Repeats(vec![info(format!(
        "Failed to test data store connection: this server is a not a member of the etcd cluster. Found \
         [{name}-00000000=https://192.0.2.1:2380], expect: {name}-00000000=https://{}",
        crate::api_client::join_host_port(address, 2380)
    ))])
}

pub(super) fn out_of_space(_: &Facts) -> Script {
    let full = "etcdserver: mvcc: database space exceeded";
    Script::Repeats(vec![
        info(format!("Failed to test data store connection: {full}")),
        etcd(format!("{ETCD_CLIENT},\"error\":\"rpc error: code = ResourceExhausted desc = {full}\"")),
        etcd(
            "\"caller\":\"etcdserver/corrupt.go:426\",\"msg\":\"alarm raised\",\"alarm\":\"memberID:10276657743932975437 alarm:NOSPACE\"",
        ),
        error(format!("Failed to record snapshots for cluster: {full}")),
    ])
}

pub(super) fn apiserver_not_synced(_: &Facts) -> Script {
    Script::Repeats(vec![
        info("Pod for etcd is synced"),
        info("Pod for kube-apiserver not synced (pod sandbox has changed), retrying"),
        // The spelling of older releases.
        info("kube-apiserver pod not found, retrying"),
        warning("Failed to list nodes with etcd role: runtime core not ready"),
    ])
}

/// A failed pull in the journal, and the waiting pod in `kubelet.log`.
fn pull_fails(facts: &Facts, image: &str, list: &str, pod: &str) -> Vec<Line> {
    let cause = format!(
        "failed to pull and unpack image \"docker.io/rancher/{image}\": failed to resolve reference \"docker.io/rancher/{image}\": failed \
         to do request: Head \"https://registry-1.docker.io/v2/rancher/{}\": dial tcp: lookup registry-1.docker.io: no such host",
        image.replacen(':', "/manifests/", 1)
    );
    let file = format!("{}/agent/images/{list}.txt", facts.data_dir);
    vec![
        info(format!("Pulling images from {file}")),
        error(format!(
            "Error encountered while importing {file}: failed to pull images from {file}: rpc error: code = DeadlineExceeded desc = {cause}"
        )),
        kubelet(
            "pod_workers.go:1324",
            format!(
                "\"Error syncing pod, skipping\" err=\"failed to \\\"StartContainer\\\" for \\\"{pod}\\\" with ImagePullBackOff: \
                 \\\"Back-off pulling image \\\\\\\"index.docker.io/rancher/{image}\\\\\\\"\\\"\" pod=\"kube-system/{pod}-{}\"",
                facts.node_name
            ),
        ),
    ]
}

pub(super) fn images_missing(facts: &Facts) -> Script {
    Script::Repeats(pull_fails(facts, "hardened-etcd:v3.6.14-k3s1-build20260801", "etcd-image", "etcd"))
}

pub(super) fn agent_images_missing(facts: &Facts) -> Script {
    Script::Repeats(pull_fails(
        facts,
        "hardened-kubernetes:v1.36.3-rke2r1-build20260801",
        "kube-proxy-image",
        "kube-proxy",
    ))
}
