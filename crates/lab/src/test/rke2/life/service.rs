//! A stop, after which nothing of the distribution runs, and a start, which brings back the members and their pods.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use gpuaas_api_types::{Allocation, WorkloadDetail};

use super::{Life, WORKLOAD, check_ready};
use crate::{
    node::Node,
    test::{
        check::check,
        rke2::{
            node_listeners, prober, removal,
            usage::{self, Pod},
        },
    },
};

/// What `--sabotage` breaks: the server's unit is started again, and the pods are deleted after the start.
pub(super) const STOPPED: &str = "stopped";
pub(super) const PODS_BACK: &str = "pods-back";

/// Ports of the apiserver, the supervisor and the kubelet.
const PORTS: [u16; 3] = [6_443, 9_345, 10_250];

/// Stops and starts the workload.
pub(super) fn run_checks(life: &Life<'_>) -> anyhow::Result<()> {
    let pods = usage::pods(life.cluster)?;
    life.while_probing(|| {
        check("a stop ends everything on every machine, and frees no allocation", || stop(life))?;
        check("a start brings back every member, with the same pods", || start(life, &pods))
    })?;
    check("pods on all three answer each other again", || {
        usage::await_dns(life.cluster)?;
        usage::answer_each_other(life.cluster, &life.nodes())
    })
}

fn stop(life: &Life<'_>) -> anyhow::Result<()> {
    life.control_plane.run_operation(&["workload", "stop", WORKLOAD, "--yes"])?;
    if life.breaks(STOPPED) {
        life.server.capture(&["systemctl", "start", "--no-block", "rke2-server"])?;
    }
    let detail: WorkloadDetail = life.control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
    let lifecycle = &detail.workload.lifecycle;
    ensure!(lifecycle == "stopped", "the workload is {lifecycle}");
    for node in life.nodes() {
        check_stopped(node).with_context(|| node.name().to_string())?;
    }
    for address in usage::addresses(&life.nodes()) {
        ensure!(prober::fetch(address).is_err(), "a pod still answers at {address}");
    }
    let allocations: Vec<Allocation> = life.control_plane.gpuaas(&["allocation", "list"])?;
    for node in life.nodes() {
        let held = |of: &Allocation| of.node_name == node.name().as_str() && of.state == "active";
        ensure!(allocations.iter().any(held), "the allocation of {} is gone", node.name());
    }
    Ok(())
}

/// Checks by the machine's own tools that no unit, process or port of the distribution is left, and that nothing starts at boot.
fn check_stopped(node: &Node) -> anyhow::Result<()> {
    for unit in ["rke2-server", "rke2-agent"] {
        // A service that ends with another status than 0 after SIGTERM is `failed`. The archive contains the files of both units.
        for (question, allowed) in [("is-active", &["inactive", "failed"][..]), ("is-enabled", &["disabled"][..])] {
            let output = node.run(&["systemctl", question, unit])?;
            let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            ensure!(allowed.contains(&state.as_str()), "systemctl {question} {unit} prints {state:?}");
        }
    }
    let processes = removal::list_content(node)?.of("process");
    let left: Vec<&String> = processes.iter().filter(|path| !path.starts_with("/usr/bin/gpuaas")).collect();
    ensure!(left.is_empty(), "these programs still run: {left:?}");
    for port in PORTS {
        let listens = node_listeners(node, port)?;
        ensure!(listens.is_empty(), "something listens on port {port}: {listens}");
    }
    Ok(())
}

fn start(life: &Life<'_>, before: &[Pod]) -> anyhow::Result<()> {
    life.control_plane.run_operation(&["workload", "start", WORKLOAD])?;
    if life.breaks(PODS_BACK) {
        life.cluster.capture(&["delete", "pods", "--selector=app=answers", "--wait=false"])?;
    }
    // Only a start that took the old status of a KubeNode for the new kubelet's own ends before that one listens.
    check_ready(life.control_plane, life.cluster, &life.nodes())?;
    usage::await_restarts(life.cluster, before)?;
    let names = |pods: &[Pod]| pods.iter().map(|pod| pod.name.clone()).collect::<BTreeSet<_>>();
    let (was, now) = (names(before), names(&usage::pods(life.cluster)?));
    ensure!(was == now, "the pods were {was:?} and are {now:?}");
    Ok(())
}
