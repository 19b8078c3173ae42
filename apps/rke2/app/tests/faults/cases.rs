//! One case for each symptom: the message that a journal contains, and the row that names it. The expected classes and commands are in
//! `symptoms.rs`.

/// A message with a symptom.
pub(crate) struct Case {
    /// Code of the row, and its position among the rows with this code.
    pub(crate) row: (&'static str, usize),
    /// The message, without the form in which a program logs it.
    pub(crate) message: &'static str,
    /// Lines that precede it.
    pub(crate) before: &'static [&'static str],
    /// Number of times that the message is repeated.
    pub(crate) times: usize,
}

const fn case(code: &'static str, message: &'static str) -> Case {
    nth(code, 0, message)
}

const fn nth(code: &'static str, position: usize, message: &'static str) -> Case {
    Case { row: (code, position), message, before: &[], times: 1 }
}

const fn in_reset(message: &'static str) -> Case {
    const RESET: &[&str] = &[r#"time="x" level=info msg="Starting etcd for new cluster, cluster-reset=true""#];
    Case { before: RESET, ..nth("rke2_cluster_reset_failed", 1, message) }
}

pub(crate) const CASES: &[Case] = &[
    case(
        "rke2_node_password_rejected",
        "Waiting to retrieve agent configuration; server is not ready: Node password rejected, duplicate hostname or contents of \
         '/etc/rancher/node/password' may not match server node-passwd entry",
    ),
    case("rke2_duplicate_member", "ETCD join failed: duplicate node name found, please use a unique name"),
    case("rke2_duplicate_member", "shutdown request received: etcd cluster join failed: duplicate node name found"),
    case(
        "rke2_clock_skew",
        "failed to get CA certs: x509: certificate has expired or is not yet valid: current time 2026-01-02T03:04:05Z is before \
         2026-11-02T03:04:05Z",
    ),
    case(
        "rke2_certificate_expired",
        "Unable to authenticate the request: x509: certificate has expired or is not yet valid: current time 2027-11-02T03:04:05Z is \
         after 2026-11-02T03:04:05Z",
    ),
    case(
        "rke2_certificate_expired",
        "http: TLS handshake error from 192.0.2.2:4: remote error: tls: expired certificate",
    ),
    case(
        "rke2_token_malformed",
        "preparing server: failed to normalize token; must be in format K10<CA-HASH>::<USERNAME>",
    ),
    case("rke2_token_malformed", "panic: failed to normalize server token; must be in format K10<CA-HASH>::<USERNAME>"),
    case("rke2_token_malformed", "Error: invalid token format"),
    case("rke2_token_malformed", "Error: invalid token CA hash length"),
    case("rke2_token_malformed", "Error: token must not be empty"),
    case(
        "rke2_token_ca_mismatch",
        "Failed to validate connection to cluster at https://192.0.2.1:9345: token CA hash does not match the Cluster CA certificate \
         hash: 8fb29a != 55c1e0",
    ),
    case("rke2_token_ca_mismatch", "starting agent: token is not valid for the server CA hash 55c1e0"),
    case(
        "rke2_bootstrap_token_mismatch",
        "Failed to reconcile with temporary etcd: bootstrap data already found and encrypted with different token",
    ),
    case(
        "rke2_config_mismatch",
        "failed to validate server configuration: critical configuration value mismatch between servers",
    ),
    case(
        "rke2_not_a_member",
        "start managed database: this server is a not a member of the etcd cluster. Found [gpu-1-0a=https://192.0.2.9:2380], expect: \
         192.0.2.1",
    ),
    case("rke2_not_a_member", "this server is not a member of the etcd cluster"),
    case("rke2_cluster_id_mismatch", "request sent was ignored (cluster ID mismatch: peer[a1]=b2, local=c3)"),
    case(
        "rke2_cluster_id_mismatch",
        "/var/lib/rancher/rke2/server/tls/client-ca.crt newer than datastore and could cause an outage",
    ),
    case(
        "rke2_cluster_reset_failed",
        "cannot perform cluster-reset while server URL is set - remove server from configuration",
    ),
    case(
        "rke2_cluster_reset_failed",
        "Managed etcd cluster membership was previously reset, please start the server normally",
    ),
    in_reset("listen tcp 127.0.0.1:6444: bind: address already in use"),
    in_reset("Waiting for etcd server to become available"),
    in_reset("Failed to test data store connection: context deadline exceeded"),
    in_reset("Failed to test etcd connection: context deadline exceeded"),
    in_reset("Failed to get apiserver address from etcd: context deadline exceeded"),
    in_reset("failed to get CA certs: Get \"https://127.0.0.1:6444/cacerts\": connection reset by peer"),
    Case {
        before: &["admin : COMMAND=/usr/local/bin/rke2 server --cluster-reset"],
        ..nth("rke2_cluster_reset_failed", 1, "listen tcp 127.0.0.1:6444: bind: address already in use")
    },
    case("rke2_etcd_corrupt", "etcdserver: memberID:1 alarm:CORRUPT"),
    case("rke2_etcd_corrupt", "walpb: crc mismatch"),
    case("rke2_etcd_corrupt", "panic: failed to recover v3 backend from snapshot"),
    case("rke2_etcd_corrupt", "panic: file checksum mismatch"),
    case("rke2_etcd_out_of_space", "etcdserver: mvcc: database space exceeded"),
    case("rke2_etcd_out_of_space", "memberID:1 alarm:NOSPACE"),
    case("rke2_etcd_out_of_space", "rpc error: code = ResourceExhausted desc = etcdserver: mv"),
    case("rke2_disk_full", "write /var/lib/rancher/rke2/agent/etc/kubelet.conf: no space left on device"),
    case("rke2_memory_cgroup_missing", "failed to find memory cgroup (v2)"),
    case("rke2_memory_cgroup_missing", "Failed to find memory cgroup, you may need to change your linux cmdline"),
    case(
        "rke2_memory_cgroup_missing",
        "you may need to add cgroup_memory=1 cgroup_enable=memory to your linux cmdline",
    ),
    case("rke2_memory_cgroup_missing", "failed to run Kubelet: system validation failed - missing cgroups: memory"),
    case(
        "rke2_overlayfs_refused",
        "Waiting to retrieve agent configuration; server is not ready: \"overlayfs\" snapshotter cannot be enabled for \
         \"/var/lib/rancher/rke2/agent/containerd\"",
    ),
    case("rke2_overlayfs_refused", "failed to mount overlay: operation not permitted"),
    case(
        "rke2_runtime_image_unavailable",
        "failed to get runtime image index.docker.io/rancher/rke2-runtime:v1.36.3-rke2r1: all endpoints failed",
    ),
    case("rke2_runtime_image_unavailable", "failed to pull runtime image: context deadline exceeded"),
    case("rke2_runtime_image_unavailable", "failed to extract runtime image: archive/tar: invalid tar header"),
    case(
        "rke2_runtime_image_unavailable",
        "chmod /var/lib/rancher/rke2/data/v1.36.3-rke2r1-e6c1/bin: no such file or directory",
    ),
    nth(
        "rke2_runtime_image_unavailable",
        1,
        "Extracting file bin/kubelet to /var/lib/rancher/rke2/data/v1.36.3-rke2r1-e6c1/bin/kubelet: unexpected EOF",
    ),
    nth(
        "rke2_runtime_image_unavailable",
        1,
        "blob of rancher/rke2-runtime: read tcp 192.0.2.2:40218->198.51.100.3:443: connection reset by peer",
    ),
    case(
        "rke2_exec_forbidden",
        "containerd: fork/exec /var/lib/rancher/rke2/data/v1/bin/containerd: operation not permitted",
    ),
    case("rke2_exec_forbidden", "audit: type=1400 avc:  denied  { execute } for comm=\"containerd\""),
    case("rke2_exec_forbidden", "audit: type=1400 avc: denied { execute } for comm=\"runc\""),
    nth("rke2_exec_forbidden", 1, "fork/exec /var/lib/rancher/rke2/data/v1/bin/kubelet: permission denied"),
    case("rke2_wrong_interface", "listen tcp 192.0.2.7:2380: bind: cannot assign requested address"),
    case(
        "rke2_wrong_interface",
        "failed to validate nodeIP: node IP: \"192.0.2.7\" not found in the host's network interfaces",
    ),
    case(
        "rke2_wrong_interface",
        "tls: failed to verify: x509: certificate is valid for 127.0.0.1, 10.0.2.15, not 192.0.2.7",
    ),
    case("rke2_wrong_interface", "Could not find valid interface matching eno2: error looking up interface eno2"),
    case("rke2_wrong_interface", "Failed to find interface to use that matches the interfaces and/or regexes provided"),
    case("rke2_wrong_interface", "unable to select an IP from default routes"),
    case("rke2_wrong_interface", "no default routes found in \"/proc/net/route\""),
    case("rke2_address_in_use", "listen tcp 127.0.0.1:6444: bind: address already in use"),
    Case {
        before: &["+ /usr/bin/systemctl is-enabled --quiet nm-cloud-setup.service"],
        ..case("rke2_network_manager", "rke2-server.service: Control process exited, code=exited, status=1/FAILURE")
    },
    case(
        "rke2_kubelet_exited",
        "kubelet.log: E1102 run.go:74] \"command failed\" err=\"failed to set feature gates: unrecognized feature gate: Old\"",
    ),
    case("rke2_kubelet_exited", "kubelet.log: E1102 server.go:302] failed to run Kubelet: invalid configuration"),
    nth("rke2_kubelet_exited", 1, "Kubelet exited: exit status 1"),
    nth("rke2_kubelet_exited", 1, "temporary kubelet process exited unexpectedly"),
    case(
        "rke2_images_evicted",
        "Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
    ),
    case("rke2_images_evicted", "attempting to delete unused images"),
    case("rke2_images_evicted", "Removing image to free bytes imageID=\"sha256:5731d7\" size=964962093"),
    case("rke2_images_evicted", "[imageGCManager]: Removing image sha256:5731d7 to free 964962093 bytes"),
    case("rke2_images_evicted", "failed to garbage collect required amount of images. Wanted to free 473842483 bytes"),
    case("rke2_images_evicted", "Event occurred reason=EvictionThresholdMet"),
    case("rke2_images_evicted", "Node gpu-2 status is now: NodeHasDiskPressure"),
    case("rke2_images_evicted", "Event occurred reason=FreeDiskSpaceFailed"),
    case("rke2_images_evicted", "Event occurred reason=ImageGCFailed"),
    case("rke2_images_evicted", "Eviction manager: must evict pod(s) to reclaim resourceName=\"ephemeral-storage\""),
    case("rke2_image_missing", "Error syncing pod: back-off: ImagePullBackOff"),
    case("rke2_image_missing", "Error syncing pod: ErrImagePull"),
    case("rke2_image_missing", "Failed to pull image \"rancher/klipper-helm:v0.9\": not found"),
    case("rke2_image_missing", "failed to pull image \"rancher/klipper-helm:v0.9\": i/o timeout"),
    case(
        "rke2_image_missing",
        "failed to pull and unpack image \"docker.io/rancher/hardened-etcd:v3\": no route to host",
    ),
    case("rke2_image_missing", "failed to get sandbox image \"index.docker.io/rancher/mirrored-pause:3.6\""),
    case("rke2_proxy_in_the_way", "failed to do connect handshake, response: \"HTTP/1.1 403 Forbidden\""),
    case("rke2_proxy_in_the_way", "HTTP/1.1 403 Denied X-Squid-Error: ERR_ACCESS_DENIED 0"),
    case("rke2_proxy_in_the_way", "Get \"https://192.0.2.1:9345/ping\": proxyconnect tcp: EOF"),
    nth(
        "rke2_proxy_in_the_way",
        1,
        "cannot get the version of member 68 (Get \"https://192.0.2.3:2380/version\": Forbidden)",
    ),
    case("rke2_ca_of_earlier_cluster", "Failed to connect to proxy: x509: certificate signed by unknown authority"),
    case(
        "rke2_ca_of_earlier_cluster",
        "while trying to verify candidate authority certificate \"rke2-server-ca@1790\"",
    ),
    nth("rke2_server_unreachable", 2, "Remotedialer proxy error: dial tcp 192.0.2.1:9345: connect: connection refused"),
    nth("rke2_wrong_interface", 1, "Remotedialer proxy error: dial tcp 10.0.2.15:9345: connect: connection refused"),
    nth("rke2_wrong_interface", 1, "Get \"https://10.0.2.15:2380/version\": EOF"),
    nth(
        "rke2_server_unreachable",
        1,
        "failed to get CA certs: Get \"https://127.0.0.1:6444/cacerts\": connection reset by peer",
    ),
    nth(
        "rke2_server_unreachable",
        1,
        "Failed to validate connection to cluster at https://192.0.2.1:9345: no route to host",
    ),
    nth("rke2_server_unreachable", 1, "CA cert validation failed: Get \"https://127.0.0.1:6444/cacerts\": EOF"),
    nth(
        "rke2_server_unreachable",
        0,
        "token CA hash does not match the Cluster CA certificate hash: 8fb29a != \
         e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    case(
        "rke2_token_rejected",
        "Waiting to retrieve agent configuration; server is not ready: https://127.0.0.1:6444/v1-rke2/config: 401 Unauthorized",
    ),
    case("rke2_token_rejected", "Waiting to retrieve agent configuration; server is not ready: not authorized"),
    case(
        "rke2_waiting_for_server",
        "Waiting to retrieve agent configuration; server is not ready: runtime core not ready",
    ),
    case("rke2_network_blocked", "Remotedialer proxy error: dial tcp 192.0.2.1:9345: connect: no route to host"),
    case("rke2_network_blocked", "Remotedialer proxy error: dial tcp 192.0.2.1:9345: i/o timeout"),
    case("rke2_network_blocked", "dial tcp 192.0.2.2:9999: connect: no route to host"),
    case("rke2_network_blocked", "error dialing backend: dial tcp 192.0.2.2:10250: i/o timeout"),
    case("rke2_network_blocked", "dial tcp 10.42.1.3:53: connect: connection timed out"),
    case("rke2_network_not_ready", "Network plugin returns error: cni plugin not initialized"),
    case("rke2_network_not_ready", "network plugin is not ready: cni config uninitialized"),
    case("rke2_network_not_ready", "untolerated taint {node.cloudprovider.kubernetes.io/uninitialized: true}"),
    case("rke2_etcd_slow", "controllermanager.go:234] leaderelection lost"),
    case("rke2_etcd_slow", "leader election lost for rke2-etcd"),
    nth("rke2_etcd_slow", 1, "apply request took too long\",\"took\":\"9.997793255s\",\"expected-duration\":\"100ms"),
    nth("rke2_etcd_slow", 1, "slow fdatasync\",\"took\":\"7.454439372s\",\"expected-duration\":\"1s"),
    nth("rke2_etcd_slow", 1, "request stats\",\"time spent\":\"2.024605217s"),
    Case {
        times: 20,
        ..nth("rke2_etcd_slow", 1, "leader failed to send out heartbeat on time; took 210ms, leader is overloaded")
    },
    case("rke2_apiserver_outdated", "kube-apiserver pod not found, retrying"),
    case("rke2_apiserver_outdated", "Pod for kube-apiserver not synced (no current running pod found), retrying"),
    case("rke2_etcd_not_ready", "Waiting for etcd server to become available"),
    case("rke2_etcd_not_ready", "Failed to test etcd connection: failed to get etcd status"),
    case("rke2_etcd_not_ready", "Failed to test data store connection: context deadline exceeded"),
    case("rke2_etcd_not_ready", "Failed to check local etcd status for learner management: context deadline exceeded"),
    case("rke2_etcd_not_ready", "Pod for etcd not synced (no current running pod found), retrying"),
    case(
        "rke2_etcd_not_ready",
        "Waiting to retrieve kube-proxy configuration; server is not ready: https://127.0.0.1:9345/v1-rke2/readyz: 500 Internal \
         Server Error",
    ),
    case("rke2_etcd_not_ready", "Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"),
    case("rke2_start_skipped", "rke2-agent.service: Skipped due to 'exec-condition'."),
];
