//! Removal of a workload without remains; anything that prevents it is reported.

use anyhow::{Context, ensure};
use gpuaas_api_types::{OperationDetail, Step, WorkloadDetail};

use super::{WORKLOAD, planted::Planted};
use crate::lab::{
    node::Node,
    test::{
        check::check,
        control_plane::ControlPlane,
        evidence,
        left::{self, Left},
        said::in_shell,
    },
};

/// The fault that lists what an uninstall left.
const FAULT: &str = "rke2_residue";

/// Folders that may change: the agent's data, logs, caches, and the stand-in's start counter, which outlives an uninstall.
const LEFT_OUT: [&str; 4] = ["/var/lib/gpuaas-agent", "/var/log", "/var/cache", "/var/lib/stand-in"];

/// Lists the content of a machine.
pub(super) fn look(node: &Node) -> anyhow::Result<Left> {
    Left::look(node, &LEFT_OUT)
}

/// Removes the workload from all nodes. The agent `spoiled` has things that no uninstall removes.
pub(super) fn tell(
    control_plane: &ControlPlane,
    nodes: &[Node],
    before: &[Left],
    spoiled: &Node,
) -> anyhow::Result<()> {
    check("the agent is not removed from under a workload", || {
        let said = in_shell(spoiled, "sh /usr/share/gpuaas-agent/install.sh --uninstall")?;
        said.refused("install_workload_present", 5, "gpuaas workload decommission").map(drop)
    })?;
    let planted = check("a file, a unit, a mount, a link, a listener and a firewall rule are planted", || {
        Planted::plant(spoiled)
    })?;
    let ended = check("the decommission needs attention, for residue on that machine alone", || {
        ends_with_residue(control_plane, spoiled)
    })?;
    let told = left::told(&evidence_of(&ended)?)?;
    println!("    told: {}", told.iter().map(|(kind, what)| format!("{kind} {what}")).collect::<Vec<_>>().join("; "));
    check("what is told is what was planted, and nothing else", || Planted::is_all_of(&told))?;
    check("a unit of RKE2's name where an administrator's lie went with the uninstall", || planted.is_taken_along())?;
    check("the machine's own tools list the same, and nothing on the others", || {
        for (node, before) in nodes.iter().zip(before) {
            let left = look(node)?.since(before);
            if node.name() == spoiled.name() {
                left.is_told_by(&told)?;
            } else {
                ensure!(left.is_empty(), "left on {}:\n{left}", node.name());
            }
        }
        Ok(())
    })?;
    check("planted things are removed, and the decommission is resumed to its end", || {
        planted.remove()?;
        control_plane.succeeded(&["workload", "resume", WORKLOAD])?;
        let detail: WorkloadDetail = control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
        let lifecycle = &detail.workload.lifecycle;
        ensure!(lifecycle == "decommissioned", "the workload is {lifecycle}");
        Ok(())
    })?;
    check("every machine has what it had before, and nothing else", || {
        nodes.iter().zip(before).try_for_each(|(node, before)| look(node)?.is(before, node))
    })
}

fn ends_with_residue(control_plane: &ControlPlane, spoiled: &Node) -> anyhow::Result<OperationDetail> {
    let detail = control_plane.needs_attention(&control_plane.begin(&["workload", "decommission", WORKLOAD])?)?;
    let why = || evidence::of_operation(control_plane, &detail);
    let shown: WorkloadDetail = control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
    let member = shown.members.iter().find(|member| member.node_name == spoiled.name().as_str());
    let step = format!("{}/residue", member.context("it is a member")?.name);
    let failed: Vec<&Step> = detail.steps.iter().filter(|step| step.state == "failed").collect();
    ensure!(failed.len() == 1 && failed[0].key == step, "other steps than {step} failed: {}", why());
    let fault = failed[0].fault.as_ref().context("it has a fault")?;
    ensure!(fault.code == FAULT, "the fault is {}: {}", fault.code, why());
    Ok(detail)
}

fn evidence_of(detail: &OperationDetail) -> anyhow::Result<String> {
    let fault = detail.operation.fault.as_ref().context("the operation has a fault")?;
    fault.evidence.clone().context("the fault has evidence")
}
