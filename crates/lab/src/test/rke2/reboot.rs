//! Reboot of a machine in the cluster.

use std::time::Duration;

use anyhow::{Context, ensure};
use gpuaas_api_types::WorkloadDetail;

use super::{WORKLOAD, usage};
use crate::{
    node::Node,
    test::{cluster::Cluster, control_plane::ControlPlane},
};

/// Longest time from a boot until the node is Ready and its pods run.
const BACK_MAX: Duration = Duration::from_secs(120);

/// Reboots the machine and checks that everything runs again, by reports of the new boot rather than stale ones of the old.
pub(super) fn reboot_and_check(control_plane: &ControlPlane, cluster: &Cluster, node: &Node) -> anyhow::Result<()> {
    let name = node.name().as_str();
    let on_it = || usage::pods(cluster)?.into_iter().find(|pod| pod.node == name).context("no pod runs on the node");
    let before = on_it()?;
    node.reboot()?;
    let boot = node.capture(&["cat", "/proc/sys/kernel/random/boot_id"])?;
    let kube_node = format!("node/{name}");
    // Until the new kubelet reports the new boot ID, the cluster may still show the old Ready.
    cluster.wait(&[&kube_node], &format!("jsonpath={{.status.nodeInfo.bootID}}={boot}"), BACK_MAX)?;
    cluster.wait(&[&kube_node], "condition=Ready", BACK_MAX)?;
    usage::await_restarts(cluster, std::slice::from_ref(&before))?;
    let after = on_it()?;
    ensure!(after.name == before.name, "the node runs the pod {} instead of {}", after.name, before.name);
    let starts = node.capture(&["systemctl", "show", "--property=NRestarts", "--value", "gpuaas-agent.service"])?;
    ensure!(starts == "0", "the agent was restarted {starts} times after the boot");
    let is_well = || {
        let detail: WorkloadDetail = control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
        let workload = &detail.workload;
        let is_well = workload.health == "healthy" && workload.members_ready == workload.members_total;
        Ok(is_well.then_some(()))
    };
    control_plane.until("the workload is healthy again", BACK_MAX, is_well)
}
