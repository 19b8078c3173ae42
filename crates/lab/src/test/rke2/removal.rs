//! Removal of a workload without remains; anything that prevents it is reported.

use anyhow::{Context, ensure};
use gpuaas_api_types::{Member, OperationDetail, Step, WorkloadDetail};

use super::{WORKLOAD, planted::Planted};
use crate::{
    node::Node,
    test::{
        check::check,
        command_output::run_script,
        control_plane::ControlPlane,
        evidence,
        listing::{self, MachineListing},
    },
};

/// The fault that lists what an uninstall left.
const FAULT: &str = "rke2_residue";

/// Folders that may change: the agent's data, logs, caches, and the stand-in's start counter, which outlives an uninstall.
const EXCLUDED: [&str; 4] = ["/var/lib/gpuaas-agent", "/var/log", "/var/cache", "/var/lib/stand-in"];

/// Lists the content of a machine.
pub(super) fn list_content(node: &Node) -> anyhow::Result<MachineListing> {
    MachineListing::read(node, &EXCLUDED)
}

/// Removes the workload from all nodes. The agent `spoiled` has things that no uninstall removes.
pub(super) fn run_checks(
    control_plane: &ControlPlane,
    nodes: &[Node],
    before: &[MachineListing],
    spoiled: &Node,
) -> anyhow::Result<()> {
    check("install.sh --uninstall is refused while the machine runs a workload", || {
        let output = run_script(spoiled, "sh /usr/share/gpuaas-agent/install.sh --uninstall")?;
        output.expect_refusal("install_workload_present", 5, "gpuaas workload decommission").map(drop)
    })?;
    let planted = check("a file, a unit, a mount, a link, a listener and a firewall rule are planted", || {
        Planted::plant(spoiled)
    })?;
    let ended = check("the decommission needs attention, because of residue on that machine only", || {
        decommission_with_residue(control_plane, spoiled)
    })?;
    let reported = listing::parse_residue(&evidence_of(&ended)?)?;
    println!(
        "    reported: {}",
        reported.iter().map(|(kind, what)| format!("{kind} {what}")).collect::<Vec<_>>().join("; ")
    );
    check("the reported residue is exactly what was planted", || Planted::check_reported(&reported))?;
    check("the uninstall removed a unit with RKE2's prefix among the administrator's units", || {
        planted.check_unit_removed()
    })?;
    check("the machine's own tools list the same residue, and none on the others", || {
        for (node, before) in nodes.iter().zip(before) {
            let left = list_content(node)?.since(before);
            if node.name() == spoiled.name() {
                left.check_reported(&reported)?;
            } else {
                ensure!(left.is_empty(), "left behind on {}:\n{left}", node.name());
            }
        }
        Ok(())
    })?;
    check("the planted residue is removed, and the resumed decommission succeeds", || {
        planted.remove()?;
        control_plane.run_operation(&["workload", "resume", WORKLOAD])?;
        let detail: WorkloadDetail = control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
        let lifecycle = &detail.workload.lifecycle;
        ensure!(lifecycle == "decommissioned", "the workload is {lifecycle}");
        Ok(())
    })?;
    check("every machine has exactly the content that it had before the deployment", || {
        nodes.iter().zip(before).try_for_each(|(node, before)| list_content(node)?.check_same(before, node))
    })
}

fn decommission_with_residue(control_plane: &ControlPlane, spoiled: &Node) -> anyhow::Result<OperationDetail> {
    let detail = control_plane.wait_needs_attention(&control_plane.begin(&[
        "workload",
        "decommission",
        WORKLOAD,
        "--yes",
    ])?)?;
    let why = || evidence::describe_operation(control_plane, &detail);
    let shown: WorkloadDetail = control_plane.gpuaas(&["workload", "show", WORKLOAD])?;
    // Earlier members on this machine were removed.
    let present = |member: &&Member| member.node_name == spoiled.name().as_str() && member.state != "removed";
    let member = shown.members.iter().find(present);
    let step = format!("{}/residue", member.context("the node has no member")?.name);
    let failed: Vec<&Step> = detail.steps.iter().filter(|step| step.state == "failed").collect();
    ensure!(failed.len() == 1 && failed[0].key == step, "other steps than {step} failed: {}", why());
    let fault = failed[0].fault.as_ref().context("the step has no fault")?;
    ensure!(fault.code == FAULT, "the fault is {}: {}", fault.code, why());
    Ok(detail)
}

fn evidence_of(detail: &OperationDetail) -> anyhow::Result<String> {
    let fault = detail.operation.fault.as_ref().context("the operation has no fault")?;
    fault.evidence.clone().context("the fault has no evidence")
}
