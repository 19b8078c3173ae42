//! Faults that end the program: the unit loops in `auto-restart`.

use super::line::{Line, error, etcd, info, warning};
use super::switch::{Facts, Script};
use crate::server_files::BOOTSTRAP_TOKEN_MISMATCH;
use crate::settings::Role;
use crate::version::RUNTIME_IMAGE;

fn exits(before: Vec<Line>, fatal: impl Into<String>) -> Script {
    Script::Exits { before, fatal: fatal.into() }
}

pub(super) fn at_once(_: &Facts) -> Script {
    exits(Vec::new(), "starting kubernetes: preparing server: stand-in fault exit-at-once")
}

pub(super) fn duplicate_member(facts: &Facts) -> Script {
    let before = vec![info(format!(
        "Adding member {}-a1b2c3d4=https://{}:2380 to etcd cluster",
        facts.node_name, facts.address
    ))];
    exits(before, "ETCD join failed: duplicate node name found, please use a unique name for this node")
}

pub(super) fn bootstrap_token(_: &Facts) -> Script {
    exits(vec![info("Reconciling bootstrap data between datastore and disk")], BOOTSTRAP_TOKEN_MISMATCH)
}

pub(super) fn config_mismatch(_: &Facts) -> Script {
    let before = vec![warning("critical configuration mismatched: ClusterIPRanges, ServiceIPRanges")];
    exits(
        before,
        "starting kubernetes: preparing server: failed to validate server configuration: critical configuration value mismatch \
         between servers",
    )
}

pub(super) fn cluster_reset(_: &Facts) -> Script {
    exits(
        vec![info("Static pod cleanup in progress")],
        "cannot perform cluster-reset while server URL is set - remove server from configuration before resetting",
    )
}

pub(super) fn cluster_id(facts: &Facts) -> Script {
    let mismatch = || {
        etcd(
            "\"caller\":\"rafthttp/http.go:502\",\"msg\":\"request cluster ID mismatch\",\"local-member-id\":\"8e9e05c52164694d\",\
             \"local-member-cluster-id\":\"cdf818194e3a8c32\",\"remote-peer-cluster-id\":\"59a8a5efa1027e27\"",
        )
    };
    exits(
        vec![mismatch(), mismatch(), info("Reconciling bootstrap data between datastore and disk")],
        format!(
            "{}/server/cred/passwd newer than datastore and could cause a cluster outage. Remove the file(s) from disk and restart to \
             be recreated from datastore.",
            facts.data_dir
        ),
    )
}

pub(super) fn address_in_use(facts: &Facts) -> Script {
    let taken = "listen tcp 127.0.0.1:6444: bind: address already in use";
    match facts.role {
        Role::Server => exits(Vec::new(), format!("starting kubernetes: starting load balancer: {taken}")),
        Role::Agent => exits(vec![warning(format!("Error starting load balancer: {taken}"))], taken),
    }
}

pub(super) fn exec_forbidden(facts: &Facts) -> Script {
    let program = format!("{}/bin/containerd", facts.data_dir);
    let refused = format!("containerd exited: fork/exec {program}: operation not permitted");
    let before = vec![
        // fapolicyd's line has neither time nor level.
        Line::Bare(format!(
            "rule=13 dec=deny_audit perm=execute auid=-1 exe=/usr/local/bin/rke2 : path={program} ftype=application/x-executable"
        )),
        error(refused.clone()),
    ];
    exits(before, refused)
}

pub(super) fn memory_cgroup(_: &Facts) -> Script {
    let hint = "find memory cgroup, you may need to add \"cgroup_memory=1 cgroup_enable=memory\" to your linux cmdline \
                (/boot/cmdline.txt on a Raspberry Pi)";
    exits(vec![error(format!("Failed to {hint}"))], format!("failed to {hint}"))
}

pub(super) fn malformed_token(facts: &Facts) -> Script {
    let text = "failed to normalize token; must be in format K10<CA-HASH>::<USERNAME>:<PASSWORD> or <PASSWORD>";
    match facts.role {
        Role::Server => exits(Vec::new(), format!("starting kubernetes: preparing server: {text}")),
        Role::Agent => exits(Vec::new(), text),
    }
}

pub(super) fn runtime_image(facts: &Facts) -> Script {
    let images = format!("{}/agent/images", facts.data_dir);
    let cut = "Get \"https://index.docker.io/v2/rancher/rke2-runtime/blobs/sha256:0c5d\": unexpected EOF";
    let before = vec![
        warning(format!(
            "Failed to load runtime image {RUNTIME_IMAGE} from tarball: no local image available for {RUNTIME_IMAGE}: not found in any \
             file in {images}: image not found"
        )),
        info(format!("Pulling runtime image {RUNTIME_IMAGE}")),
        warning(format!("Failed to get image from endpoint: {cut}")),
    ];
    exits(before, format!("failed to get runtime image {RUNTIME_IMAGE}: all endpoints failed: {cut}"))
}
