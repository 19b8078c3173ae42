//! Ordinary lines of RKE2's units: a seeded mix of the forms that the journal of a healthy node contains.

/// A small generator of numbers: the same seed gives the same lines.
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Messages of logrus with their level. `#` stands for a number.
const LOGRUS: [(&str, &str); 19] = [
    ("warning", "not running in CIS mode"),
    ("info", "Module overlay was already loaded"),
    ("info", "Set sysctl 'net/netfilter/nf_conntrack_max' to #"),
    ("info", "Imported images from /var/lib/rancher/rke2/agent/images/rke2-images.linux-amd64.tar.zst in #ms"),
    ("info", "Reusing existing kubelet serving certificate for 192.0.2.#"),
    ("info", "Connecting to proxy"),
    ("info", "Remotedialer connected to proxy"),
    ("info", "Adding server to load balancer rke2-agent-load-balancer: 192.0.2.#:9345"),
    ("info", "Running load balancer rke2-api-server-agent-load-balancer 127.0.0.1:6443 -> [192.0.2.#:6443]"),
    ("info", "certificate CN=kube-apiserver signed by CN=rke2-server-ca@#: notAfter in # days"),
    ("info", "Tunnel authorizer set Kubelet Port 10250"),
    ("info", "Applying CRD helmcharts.helm.cattle.io"),
    ("info", "Starting /v1, Kind=Secret controller"),
    ("info", "Labels and annotations have been set successfully on node: gpu-#"),
    ("warning", "Failed to load runtime image from tarball: image not found in archive #"),
    ("warning", "bootstrap key already exists"),
    (
        "error",
        "Error encountered while importing etcd-image.txt: failed to pull images from etcd-image.txt: image \"x:v#\": not found",
    ),
    (
        "error",
        "error syncing 'kube-system/rke2-canal': handler helm-controller-chart-registration: conflict #, requeuing",
    ),
    ("debug", "Wrote ping"),
];

/// Messages of klog with severity and source.
const KLOG: [(&str, &str); 10] = [
    ("I", "server.go:#] \"Kubelet version\" kubeletVersion=\"v1.36.3+rke2r1\""),
    (
        "I",
        "reconciler.go:#] \"operationExecutor.VerifyControllerAttachedVolume started for volume\" pod=\"kube-system/p-#\"",
    ),
    ("W", "warnings.go:#] v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    ("I", "shared_informer.go:#] \"Caches are synced\" controller=\"node\""),
    ("E", "kubelet.go:#] \"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg has yet to be successful\""),
    ("I", "kubelet_node_status.go:#] \"Recording event message for node\" event=\"NodeHasNoDiskPressure\""),
    ("I", "topology_manager.go:#] \"Topology Admit Handler\" podUID=\"#\""),
    ("I", "pod_startup_latency_tracker.go:#] \"Observed pod startup duration\" pod=\"kube-system/q-#\""),
    ("I", "alloc.go:#] \"allocated clusterIPs\" service=\"kube-system/rke2-coredns\""),
    ("W", "reflector.go:#] failed to list *v1.Service: services is forbidden: User \"system:node:gpu-#\" cannot list"),
];

/// Messages of etcd with their level.
const ETCD: [(&str, &str); 6] = [
    ("info", "compacted Raft logs\",\"compact-index\":\"#"),
    ("info", "finished scheduled compaction\",\"compact-revision\":\"#"),
    ("info", "initial corruption checking passed; no corruption\",\"local-member-id\":\"#"),
    ("info", "saved snapshot\",\"snapshot-index\":\"#"),
    ("info", "established TCP streaming connection with remote peer\",\"remote-peer-id\":\"#"),
    ("warn", "apply request took too long\",\"took\":\"1#ms\",\"expected-duration\":\"100ms"),
];

/// Lines without a level.
const PLAIN: [&str; 5] = [
    "Failed to get unit file state for nm-cloud-setup.service: No such file or directory",
    "+ /usr/bin/systemctl is-enabled --quiet nm-cloud-setup.service",
    "rke2-agent.service: Unit process # (containerd-shim) remains running after unit stopped.",
    "http: TLS handshake error from 192.0.2.#:#: EOF",
    "Flag --kube-reserved has been deprecated, This parameter should be set via the config file",
];

/// Warnings of a slow etcd in one journal, fewer than what proves a slow disk.
const SLOW_WARNINGS_MAX: usize = 12;

/// Returns `count` ordinary lines.
pub(crate) fn lines(seed: u64, count: usize) -> Vec<String> {
    let (mut seed, mut slow) = (Seed::new(seed), 0);
    let mut lines = Vec::with_capacity(count);
    while lines.len() < count {
        let line = line(&mut seed);
        slow += usize::from(line.contains("took too long"));
        if !line.contains("took too long") || slow <= SLOW_WARNINGS_MAX {
            lines.push(line);
        }
    }
    lines
}

fn line(seed: &mut Seed) -> String {
    let second = seed.below(60);
    let text = match seed.below(8) {
        0..=3 => {
            let (level, text) = pick(&LOGRUS, seed);
            format!("time=\"2026-11-02T03:04:{second:02}Z\" level={level} msg={:?}", text)
        }
        4 | 5 => {
            let (severity, text) = pick(&KLOG, seed);
            format!("{severity}1102 03:04:{second:02}.123456    1234 {text}")
        }
        6 => {
            let (level, text) = pick(&ETCD, seed);
            format!("{{\"level\":\"{level}\",\"ts\":\"2026-11-02T03:04:{second:02}.000Z\",\"msg\":\"{text}\"}}")
        }
        _ => pick(&PLAIN, seed).to_owned(),
    };
    let number = seed.below(90) + 10;
    text.replace('#', &number.to_string())
}

fn pick<T: Copy>(all: &[T], seed: &mut Seed) -> T {
    let at = usize::try_from(seed.below(all.len() as u64)).expect("an index");
    all[at]
}

#[test]
fn same_seed_gives_the_same_lines_in_every_form() {
    let (once, again) = (lines(7, 2_000), lines(7, 2_000));
    assert_eq!(once, again);
    assert_ne!(once, lines(8, 2_000));
    for form in ["level=info", "level=error", "E1102", "W1102", "{\"level\":\"warn\"", "Flag --"] {
        assert!(once.iter().any(|line| line.contains(form)), "{form}");
    }
}
