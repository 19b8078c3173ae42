//! What RKE2 leaves behind when its unit is stopped: shims, containers, static pods, mounts, rules.

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::Rke2Role;
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{Process, Protocol};
use gpuaas_wire::task::TaskFailure;

/// RKE2's data folder; its shims, and the programs that its units start, are below it.
const DATA_DIR: &str = "/var/lib/rancher/rke2";
/// Prefix of the kubelet's control groups, which identify containers: their programs have any path.
const CONTAINER_GROUP: &str = "kubepods";
/// Folder of the pods that the kubelet starts without a control plane.
const STATIC_PODS: &str = "/var/lib/rancher/rke2/agent/pod-manifests";
/// Its manifests that the script removes; the tenant's own stay.
const MANIFESTS: [&str; 6] = [
    "etcd.yaml",
    "kube-apiserver.yaml",
    "kube-controller-manager.yaml",
    "cloud-controller-manager.yaml",
    "kube-scheduler.yaml",
    "kube-proxy.yaml",
];
/// TCP ports that RKE2 fixes on servers: supervisor, API server and its load balancer, etcd, and those of [`AGENT_PORTS`].
const SERVER_PORTS: &[u16] =
    &[9_345, 6_443, 6_444, 2_379, 2_380, 2_381, 2_382, 10_248, 10_250, 10_256, 10_257, 10_258, 10_259];
/// TCP ports that RKE2 fixes on every node: load balancer, kubelet and kube-proxy.
const AGENT_PORTS: &[u16] = &[6_444, 10_248, 10_250, 10_256];
/// Folders below which the killall script unmounts.
const MOUNTS: [&str; 3] = ["/run/k3s", "/var/lib/kubelet/pods", "/run/netns/cni-"];
/// Parts of the rules that the script removes.
const RULES: [&str; 5] = ["KUBE-", "CNI-", "cali-", "flannel", "CILIUM_"];

/// What is left of RKE2 while its unit is stopped.
pub(crate) struct Survivors {
    /// Processes and listeners.
    pub(crate) running: Vec<String>,
    /// True if there are mounts, static pods or packet filter rules, which a killall that was interrupted can leave.
    has_traces: bool,
}

impl Survivors {
    /// Returns true if the killall script has anything to do.
    pub(crate) fn has_anything(&self) -> bool {
        !self.running.is_empty() || self.has_traces
    }
}

/// Looks for everything that the killall script ends or removes.
pub(crate) async fn find(role: Rke2Role, context: &Context) -> Result<Survivors, TaskFailure> {
    let inventory = context.host.inventory();
    let processes = inventory.processes(&[]).await.map_err(host_failed)?;
    let mut running = named(processes, |process| is_program(process) || is_in_container(process));
    let ports = match role {
        Rke2Role::Server => SERVER_PORTS,
        Rke2Role::Agent => AGENT_PORTS,
    };
    let listeners = inventory.listeners().await.map_err(host_failed)?;
    let fixed = |of: &&gpuaas_host::Listener| of.protocol == Protocol::Tcp && ports.contains(&of.address.port());
    running.extend(listeners.iter().filter(fixed).map(ToString::to_string));
    Ok(Survivors { running, has_traces: has_traces(context).await? })
}

/// Looks for processes whose programs are RKE2's own: on a node where RKE2 is not installed, containers and ports belong to other software.
pub(crate) async fn without_script(context: &Context) -> Result<Vec<String>, TaskFailure> {
    let processes = context.host.inventory().processes(&[DATA_DIR.to_owned()]).await.map_err(host_failed)?;
    Ok(named(processes, is_program))
}

async fn has_traces(context: &Context) -> Result<bool, TaskFailure> {
    let host = &context.host;
    let manifests = host.files().list(Utf8Path::new(STATIC_PODS)).await.map_err(host_failed)?;
    let mounts = host.inventory().mounts(&MOUNTS.map(str::to_owned)).await.map_err(host_failed)?;
    if !mounts.is_empty() || manifests.iter().any(|name| MANIFESTS.contains(&name.as_str())) {
        return Ok(true);
    }
    match host.inventory().firewall_rules(&RULES.map(str::to_owned)).await {
        Ok(rules) => Ok(rules.is_some_and(|rules| !rules.is_empty())),
        // The script lists the rules with other programs.
        Err(error) => {
            tracing::warn!(%error, "could not list packet filter rules before a killall");
            Ok(true)
        }
    }
}

fn named(processes: Vec<Process>, is_left: impl Fn(&Process) -> bool) -> Vec<String> {
    processes.iter().filter(|process| is_left(process)).map(ToString::to_string).collect()
}

fn is_program(process: &Process) -> bool {
    Utf8Path::new(&process.program).starts_with(DATA_DIR)
}

fn is_in_container(process: &Process) -> bool {
    process.cgroup.split('/').any(|group| group.starts_with(CONTAINER_GROUP))
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::process_of;

    use super::*;

    #[test]
    fn shims_and_containers_of_rke2_are_survivors_and_other_processes_are_not() {
        let shim = process_of("/var/lib/rancher/rke2/data/x/bin/containerd-shim-runc-v2");
        assert!(is_program(&shim) && !is_in_container(&shim));
        let pause =
            Process { cgroup: "/kubepods.slice/kubepods-besteffort.slice/x.scope".to_owned(), ..process_of("/pause") };
        assert!(is_in_container(&pause) && !is_program(&pause));
        for other in ["/var/lib/rancher/rke2-not/x", "/usr/bin/containerd-shim-runc-v2"] {
            assert!(!is_program(&process_of(other)), "{other}");
        }
    }
}
