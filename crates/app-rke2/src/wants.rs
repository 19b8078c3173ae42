//! What RKE2 wants of a host before it comes, and what must be gone after it went.

use gpuaas_wire::task::{HostWants, Preflight, Residue, Rke2Role};

/// TCP ports that must be free on a server's own addresses: the supervisor and its balancer, the API, etcd with its metrics and what it listens
/// on while it starts, and what every node has.
const SERVER_PORTS: &[u16] = &[
    9_345, 6_443, 6_444, 2_379, 2_380, 2_381, 2_382, 2_399, 2_400, 2_402, 10_250, 10_248, 10_256, 10_257, 10_258,
    10_259, 9_099,
];
/// TCP ports that must be free on an agent's own addresses.
const AGENT_PORTS: &[u16] = &[6_444, 10_250, 10_248, 10_256, 9_099];
/// Canal's network between nodes.
const UDP_PORTS: &[u16] = &[8_472];
/// Leftovers of an earlier cluster, which make a new one fail in odd ways; of another distribution, which would share nothing peacefully; and
/// settings that would win over ours.
const LEFTOVERS: &[&str] = &[
    "/var/lib/rancher/rke2/server/db",
    "/var/lib/rancher/rke2/server/token",
    "/var/lib/kubelet/pods",
    "/etc/rancher/rke2/config.yaml.d",
    "/var/lib/rancher/k3s",
    "/etc/kubernetes/manifests",
];
/// What RKE2's uninstall deletes whole, also what it did not make.
const ENDANGERED: &[&str] = &["/etc/cni", "/opt/cni/bin"];
/// Where RKE2 keeps everything.
const DATA_DIR: &str = "/var/lib/rancher/rke2";
/// Where its programs, units and settings lie.
const PROGRAM_DIRS: &[&str] = &["/usr/local/bin", "/usr/local/lib/systemd/system", "/etc/rancher/rke2"];
/// RKE2's own least. A cluster's reset was seen to stall on two CPUs.
const CPUS_MIN: u32 = 2;
/// RKE2's own least are 4 GiB, of which the kernel keeps some.
const MEMORY_BYTES_MIN: u64 = (4 << 30) * 7 / 8;
/// etcd's advice for its log.
const WRITE_P99_US_MAX: u32 = 10_000;
/// 1,280 bytes, the least of IPv6, and 50 of VXLAN around them.
const MTU_MIN: u32 = 1_330;
/// Network links of canal, Calico, Cilium and kube-proxy.
const LINKS: &[&str] =
    &["cni0", "flannel", "cali", "vxlan.calico", "vxlan-v6.calico", "cilium_", "kube-ipvs0", "nodelocaldns"];
/// What their chains, rules and tables are called.
const FIREWALL_MARKS: &[&str] = &["KUBE-", "CNI-", "cali-", "flannel", "FLANNEL-", "CILIUM_", "kube-proxy"];
/// Where RKE2 and its kubelet mount.
const MOUNTS: &[&str] = &["/run/k3s", "/var/lib/kubelet", "/run/netns/cni-"];
/// What an uninstall must have removed.
const REMOVED_PATHS: &[&str] = &[
    "/usr/local/bin/rke2",
    "/usr/local/bin/rke2-killall.sh",
    "/usr/local/bin/rke2-uninstall.sh",
    "/usr/local/lib/systemd/system/rke2-server.service",
    "/usr/local/lib/systemd/system/rke2-agent.service",
    "/usr/local/share/rke2",
    "/etc/rancher/rke2",
    "/etc/rancher/node",
    "/var/lib/rancher/rke2",
    "/var/lib/kubelet",
];
/// What it has removed where there was something to uninstall, and what is somebody else's otherwise.
const REMOVED_WITH_IT: &[&str] =
    &["/etc/cni", "/opt/cni/bin", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/var/log/calico"];
/// Programs of RKE2, by the start of their path.
const PROGRAMS: &[&str] = &["/usr/local/bin/rke2", "/var/lib/rancher/rke2"];
/// Where the kubelet puts containers, whose programs lie wherever their images have them.
const GROUPS: &[&str] = &["kubepods"];

/// Variables by which RKE2 deviates from the configuration and the release that the platform lays out. Not among them: variables of options that the
/// configuration sets, which it beats (`RKE2_TOKEN`, `RKE2_NODE_NAME`, `RKE2_CNI`), and additions that are an operator's choice (`RKE2_DEBUG`,
/// `RKE2_SELINUX`, `RKE2_CIS_PROFILE`).
const RESERVED_VARIABLES: &[&str] = &[
    "RKE2_CONFIG_FILE",
    "RKE2_DATA_DIR",
    "RKE2_URL",
    "RKE2_CLUSTER_RESET",
    "RKE2_KUBECONFIG_OUTPUT",
    "RKE2_KUBECONFIG_GROUP",
    "RKE2_NODE_NAME_FROM_CLOUD_PROVIDER_METADATA",
    "RKE2_LB_SERVER_PORT",
    "RKE2_CLOUD_PROVIDER_NAME",
    "RKE2_CLOUD_PROVIDER_CONFIG",
    "RKE2_DATASTORE_ENDPOINT",
    "RKE2_DATASTORE_CAFILE",
    "RKE2_DATASTORE_CERTFILE",
    "RKE2_DATASTORE_KEYFILE",
    "RKE2_KUBELET_PATH",
    // Images of another registry are not those of the release.
    "RKE2_SYSTEM_DEFAULT_REGISTRY",
    "RKE2_PRIME",
    "RKE2_RUNTIME_IMAGE",
    "RKE2_PAUSE_IMAGE",
    "RKE2_ETCD_IMAGE",
    "RKE2_KUBE_APISERVER_IMAGE",
    "RKE2_KUBE_CONTROLLER_MANAGER_IMAGE",
    "RKE2_KUBE_SCHEDULER_IMAGE",
    "RKE2_KUBE_PROXY_IMAGE",
    "RKE2_CLOUD_CONTROLLER_MANAGER_IMAGE",
];

/// The checks of a node before a member of that role comes, with the free bytes that its disk needs. On a node that the member has touched before,
/// files, listeners, links, mounts and rules are its own.
pub(crate) fn preflight(role: Rke2Role, touched: bool, free_bytes_min: u64) -> Preflight {
    let unless_touched = |texts_of: &[&str]| if touched { Vec::new() } else { texts(texts_of) };
    let ports = match role {
        _ if touched => Vec::new(),
        Rke2Role::Server => SERVER_PORTS.to_vec(),
        Rke2Role::Agent => AGENT_PORTS.to_vec(),
    };
    Preflight {
        ports,
        absent_paths: unless_touched(LEFTOVERS),
        endangered_paths: unless_touched(ENDANGERED),
        free_bytes_min,
        wants: Some(HostWants {
            who: "RKE2".to_owned(),
            data_dir: DATA_DIR.to_owned(),
            program_dirs: texts(PROGRAM_DIRS),
            cpus_min: CPUS_MIN,
            memory_bytes_min: MEMORY_BYTES_MIN,
            write_p99_us_max: WRITE_P99_US_MAX,
            mtu_min: MTU_MIN,
            udp_ports: if touched { Vec::new() } else { UDP_PORTS.to_vec() },
            link_prefixes: unless_touched(LINKS),
            firewall_marks: unless_touched(FIREWALL_MARKS),
            mount_prefixes: unless_touched(MOUNTS),
            units: units(),
            reserved_variables: texts(RESERVED_VARIABLES),
            containers: true,
        }),
    }
}

/// What must be gone. `installed`: RKE2 was laid out whole for this member, so that it may have run. Only then is looked for what running it makes,
/// and what its uninstall deletes whole: where nothing ever ran, ports, links, mounts and rules by the same names are somebody else's. What the node
/// says it uninstalled decides nothing: a tenant may have done that by itself.
pub(crate) fn residue(installed: bool) -> Residue {
    let with_it = |texts_of: &[&str]| if installed { texts(texts_of) } else { Vec::new() };
    Residue {
        paths: [texts(REMOVED_PATHS), with_it(REMOVED_WITH_IT)].concat(),
        units: units(),
        process_prefixes: texts(PROGRAMS),
        mount_prefixes: with_it(MOUNTS),
        ports: if installed { SERVER_PORTS.to_vec() } else { Vec::new() },
        udp_ports: if installed { UDP_PORTS.to_vec() } else { Vec::new() },
        link_prefixes: with_it(LINKS),
        firewall_marks: with_it(FIREWALL_MARKS),
        group_prefixes: with_it(GROUPS),
    }
}

fn units() -> Vec<String> {
    texts(&[Rke2Role::Server.unit(), Rke2Role::Agent.unit()])
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
