//! Requirements of RKE2 on a host before an installation, and what an uninstall must remove.

use std::path::Path;

use gpuaas_app_rke2_tasks::{Rke2Role, Rke2Uninstall};
use gpuaas_wire::task::{HostRequirements, Preflight, Residue};

/// TCP ports that must be free on a server's own addresses: supervisor and its load balancer, API server, etcd with its metrics and its
/// ports during startup, and those of every node.
const SERVER_PORTS: &[u16] = &[
    9_345, 6_443, 6_444, 2_379, 2_380, 2_381, 2_382, 2_399, 2_400, 2_402, 10_250, 10_248, 10_256, 10_257, 10_258,
    10_259, 9_099,
];
/// TCP ports that must be free on an agent's own addresses.
const AGENT_PORTS: &[u16] = &[6_444, 10_250, 10_248, 10_256, 9_099];
/// UDP ports of canal's network between nodes.
const UDP_PORTS: &[u16] = &[8_472];
/// Leftovers of an earlier cluster, with which a new one fails in various ways; files of another distribution, which cannot share a node
/// with RKE2; and settings that would take precedence over the platform's. Not the folders of RKE2 themselves: an operator may have put files
/// there, for example a list of registries.
const LEFTOVERS: &[&str] = &[
    "/var/lib/rancher/rke2/server/db",
    "/var/lib/rancher/rke2/server/token",
    "/var/lib/kubelet/pods",
    "/etc/rancher/rke2/config.yaml.d",
    "/var/lib/rancher/k3s",
    "/etc/kubernetes/manifests",
];
/// Folders that RKE2's uninstall deletes completely, including files that RKE2 did not create.
const DELETED_BY_UNINSTALL: &[&str] = &["/etc/cni", "/opt/cni/bin"];
/// RKE2's data folder.
const DATA_DIR: &str = "/var/lib/rancher/rke2";
/// Folders of its programs, units and settings.
const PROGRAM_DIRS: &[&str] = &["/usr/local/bin", "/usr/local/lib/systemd/system", "/etc/rancher/rke2"];
/// RKE2's own minimum. On two CPUs, a reset of a cluster was observed to stall.
const CPUS_MIN: u32 = 2;
/// RKE2's own minimum is 4 GiB, of which the kernel reserves a part.
const MEMORY_BYTES_MIN: u64 = (4 << 30) * 7 / 8;
/// etcd's recommendation for its write-ahead log, in microseconds.
const WRITE_P99_US_MAX: u32 = 10_000;
/// The minimum of IPv6, 1,280 bytes, and 50 bytes for VXLAN.
const MTU_MIN: u32 = 1_330;
/// Prefixes of the network links of canal, Calico, Cilium and kube-proxy.
const LINKS: &[&str] =
    &["cni0", "flannel", "cali", "vxlan.calico", "vxlan-v6.calico", "cilium_", "kube-ipvs0", "nodelocaldns"];
/// Parts of the names of their chains, rules and tables.
const FIREWALL_MARKS: &[&str] = &["KUBE-", "CNI-", "cali-", "flannel", "FLANNEL-", "CILIUM_", "kube-proxy"];
/// Folders below which RKE2 and its kubelet mount.
const MOUNTS: &[&str] = &["/run/k3s", "/var/lib/kubelet", "/run/netns/cni-"];
/// Paths that an uninstall must have removed.
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
/// Paths that an uninstall removes only if RKE2 was installed; otherwise they belong to other software.
const REMOVED_IF_INSTALLED: &[&str] =
    &["/etc/cni", "/opt/cni/bin", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/var/log/calico"];
/// Units that the uninstall script removes by their prefix among the administrator's; the residue check reports them as units.
const ADMIN_UNITS: &[&str] = &["/etc/systemd/system/rke2-server.service", "/etc/systemd/system/rke2-agent.service"];
/// Programs of RKE2, by the start of their path.
const PROGRAMS: &[&str] = &["/usr/local/bin/rke2", "/var/lib/rancher/rke2"];
/// Prefixes of the kubelet's control groups, which identify containers, whose programs may have any path.
const GROUPS: &[&str] = &["kubepods"];

/// Variables with which RKE2 deviates from the configuration and release that the platform installs. Excluded are variables of options that
/// the configuration sets, because the configuration takes precedence (`RKE2_TOKEN`, `RKE2_NODE_NAME`, `RKE2_CNI`), and additions that are
/// an operator's choice (`RKE2_DEBUG`, `RKE2_SELINUX`, `RKE2_CIS_PROFILE`).
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
    // Images from another registry are not those of the release.
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

/// Returns the preflight of a node for a member with that role; its disk needs `free_bytes_min` free bytes. On a node that the member has
/// touched, files, listeners, links, mounts and rules are the member's own and are not checked.
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
        endangered_paths: unless_touched(DELETED_BY_UNINSTALL),
        free_bytes_min,
        wants: Some(HostRequirements {
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

/// Returns a preflight that also finds every path that the residue check of a member reports, after the member was given up. Whether RKE2 was
/// installed for it is unknown, so all of its paths count.
pub(crate) fn with_residue(preflight: Preflight) -> Preflight {
    let residue = residue(true).paths;
    let is_below = |path: &String| residue.iter().any(|of| Path::new(path).starts_with(of));
    let others = preflight.absent_paths.into_iter().filter(|path| !is_below(path));
    Preflight { absent_paths: residue.iter().cloned().chain(others).collect(), ..preflight }
}

/// Returns the uninstall task. It removes paths that its script left only if RKE2 was completely installed for this member: otherwise they
/// may belong to other software.
pub(crate) fn uninstall(installed: bool) -> Rke2Uninstall {
    let paths = if installed { [REMOVED_PATHS, REMOVED_IF_INSTALLED, ADMIN_UNITS].concat() } else { Vec::new() };
    Rke2Uninstall { paths: texts(&paths) }
}

/// Returns the residue task. `installed` means that RKE2 was completely installed for this member, so that it may have run. Only then does
/// the task check what a running RKE2 creates and what its uninstall deletes completely: otherwise ports, links, mounts and rules with
/// these names belong to other software. The node's own report of an uninstall does not matter: a tenant may have run the uninstall.
pub(crate) fn residue(installed: bool) -> Residue {
    let if_installed = |texts_of: &[&str]| if installed { texts(texts_of) } else { Vec::new() };
    Residue {
        paths: [texts(REMOVED_PATHS), if_installed(REMOVED_IF_INSTALLED)].concat(),
        units: units(),
        process_prefixes: texts(PROGRAMS),
        mount_prefixes: if_installed(MOUNTS),
        ports: if installed { SERVER_PORTS.to_vec() } else { Vec::new() },
        udp_ports: if installed { UDP_PORTS.to_vec() } else { Vec::new() },
        link_prefixes: if_installed(LINKS),
        firewall_marks: if_installed(FIREWALL_MARKS),
        group_prefixes: if_installed(GROUPS),
    }
}

fn units() -> Vec<String> {
    texts(&[Rke2Role::Server.unit(), Rke2Role::Agent.unit()])
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_accept_every_path_of_an_uninstall() {
        assert!(!uninstall(true).paths.is_empty());
        assert_eq!(uninstall(true).foreign_path(), None);
    }
}
