//! Faults of a node that has joined: its kubelet fails, its KubeNode is not Ready, or it fails after it was ready.

use super::line::{Line, error, etcd, info, kubelet, with_fields};
use super::switch::{Facts, Script};

/// The address of a network that other machines of a cluster do not reach: the first one of many virtual machines.
const OTHER_NETWORK: &str = "10.0.2.15";

pub(super) fn nothing(_: &Facts) -> Script {
    Script::Silent
}

/// The journal never has the cause; only `kubelet.log` has.
pub(super) fn kubelet_exits(_: &Facts) -> Script {
    Script::Repeats(vec![
        info("Running kubelet --cloud-provider=external --config-dir=/var/lib/rancher/rke2/agent/etc/kubelet.conf.d"),
        kubelet(
            "run.go:72",
            "\"command failed\" err=\"failed to parse kubelet flag: unknown flag: --container-runtime\"",
        ),
        error("Kubelet exited: exit status 1"),
    ])
}

/// Lines of a tunnel to a server that cannot be reached, for `cause`.
fn tunnel_fails(host: &str, cause: &str) -> Vec<Line> {
    let url = format!("wss://{host}:9345/v1-rke2/connect");
    let cause = format!("dial tcp {host}:9345: connect: {cause}");
    vec![
        with_fields("info", "Connecting to proxy", [("url", url.clone())]),
        with_fields("error", "Failed to connect to proxy. Empty dialer response", [("error", cause.clone())]),
        with_fields("error", "Remotedialer proxy error; reconnecting...", [("error", cause), ("url", url)]),
    ]
}

pub(super) fn wrong_interface(_: &Facts) -> Script {
    Script::Repeats(tunnel_fails(OTHER_NETWORK, "connection refused"))
}

pub(super) fn firewall(facts: &Facts) -> Script {
    let host = facts.server.rsplit_once(':').map_or(facts.server.as_str(), |(host, _)| host);
    Script::Repeats(tunnel_fails(host, "no route to host"))
}

pub(super) fn no_network(_: &Facts) -> Script {
    Script::Repeats(vec![kubelet(
        "kubelet.go:3117",
        "\"Container runtime network not ready\" networkReady=\"NetworkReady=false reason:NetworkPluginNotReady message:Network plugin \
         returns error: cni plugin not initialized\"",
    )])
}

/// Requests of seconds, not of the hundred milliseconds that healthy starts also log.
pub(super) fn slow_disk(_: &Facts) -> Script {
    Script::Repeats(vec![
        etcd(
            "\"caller\":\"txn/util.go:93\",\"msg\":\"apply request took too long\",\"took\":\"2.417310127s\",\"expected-duration\":\
             \"100ms\",\"prefix\":\"read-only range \",\"request\":\"key:\\\"/registry/health\\\" \",\"response\":\"\",\"error\":\
             \"context deadline exceeded\"",
        ),
        etcd(
            "\"caller\":\"wal/wal.go:842\",\"msg\":\"slow fdatasync\",\"took\":\"1.903441208s\",\"expected-duration\":\"1s\"",
        ),
        etcd(
            "\"caller\":\"etcdserver/raft.go:416\",\"msg\":\"leader failed to send out heartbeat on time; took too long, leader is \
             overloaded likely from slow disk\",\"to\":\"8e9e05c52164694d\",\"heartbeat-interval\":\"500ms\",\"expected-duration\":\"1s\",\
             \"exceeded-duration\":\"1.382716123s\"",
        ),
    ])
}

/// The kubelet removes images to free its disk, also preloaded ones, which it then cannot pull again.
pub(super) fn images_collected(facts: &Facts) -> Script {
    Script::Repeats(vec![
        Line::Kubelet {
            severity: 'I',
            source: "image_gc_manager.go:383",
            message: "\"Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold\" \
                      usage=93 highThreshold=85 amountToFree=9663676416 lowThreshold=80"
                .to_owned(),
        },
        Line::Kubelet {
            severity: 'I',
            source: "image_gc_manager.go:487",
            message: "\"Removing image to free bytes\" imageID=\"sha256:5f0d\" size=312147968 runtimeHandler=\"\"".to_owned(),
        },
        kubelet(
            "pod_workers.go:1324",
            format!(
                "\"Error syncing pod, skipping\" err=\"failed to \\\"StartContainer\\\" for \\\"kube-proxy\\\" with ErrImagePull: \\\"failed \
                 to pull and unpack image: dial tcp: lookup registry-1.docker.io: no such host\\\"\" pod=\"kube-system/kube-proxy-{}\"",
                facts.node_name
            ),
        ),
        kubelet(
            "eviction_manager.go:366",
            "\"Eviction manager: attempting to reclaim\" resourceName=\"ephemeral-storage\"",
        ),
    ])
}
