//! Lines of ordinary starts, which surround those of a fault. Several of them look like failures and are none.

use super::line::{Line, etcd, info, warning};
use super::switch::Facts;
use crate::settings::Role;
use crate::version::RUNTIME_IMAGE;

/// The address that etcd's clients log.
pub(super) const ETCD_CLIENT: &str = "\"logger\":\"etcd-client\",\"caller\":\"v3@v3.6.14-k3s1/retry_interceptor.go:65\",\"msg\":\"retrying of unary invoker \
     failed\",\"target\":\"etcd-endpoints://0xc000b2e000/127.0.0.1:2379\",\"method\":\"/etcdserverpb.Maintenance/Status\",\"attempt\":0";

/// The first lines of a start.
pub(super) fn first(facts: &Facts) -> Vec<Line> {
    let data = &facts.data_dir;
    let mut lines = vec![
        info("Module overlay was already loaded"),
        info("Module nf_conntrack was already loaded"),
        warning("Failed to load kernel module iptable_nat with modprobe"),
        info("Set sysctl 'net/netfilter/nf_conntrack_max' to 131072"),
        info(format!("Checking local image archives in {data}/agent/images for {RUNTIME_IMAGE}")),
    ];
    match facts.role {
        Role::Server => lines.extend([
            info("Static pod cleanup in progress"),
            info(format!("Logging temporary containerd to {data}/agent/containerd/containerd.log")),
            info("Static pod cleanup completed successfully"),
            info("Managed etcd cluster bootstrap already complete and initialized"),
            info("Starting temporary etcd to reconcile with datastore"),
            info("Active TLS secret kube-system/rke2-serving (ver=) (count 10)"),
        ]),
        Role::Agent => lines.extend([
            info(format!("Adding server to load balancer rke2-agent-load-balancer: {}", facts.server)),
            info("Running load balancer rke2-api-server-agent-load-balancer 127.0.0.1:6443 -> [] [default: ]"),
        ]),
    }
    lines
}

/// Lines that a waiting server or agent repeats; they say nothing about the cause.
pub(super) fn waiting(facts: &Facts) -> Vec<Line> {
    match facts.role {
        Role::Server => vec![
            info(
                "Waiting to retrieve kube-proxy configuration; server is not ready: https://127.0.0.1:9345/v1-rke2/readyz: 500 \
                 Internal Server Error",
            ),
            info("Tunnel server egress proxy waiting for runtime core to become available"),
            info("Waiting for API server to become available"),
            etcd(format!(
                "{ETCD_CLIENT},\"error\":\"rpc error: code = Unavailable desc = connection error: desc = \\\"transport: Error while \
                 dialing: dial tcp 127.0.0.1:2379: connect: connection refused\\\"\""
            )),
        ],
        Role::Agent => vec![info("Polling for API server readiness: GET https://127.0.0.1:6443/readyz")],
    }
}
