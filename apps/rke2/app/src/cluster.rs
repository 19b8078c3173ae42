//! The health of members as their cluster shows it: whether their KubeNodes are Ready, and whether the apiserver answers at all.

use gpuaas_model::{Code, Evidence, Fault, Health, Lifecycle, MemberId};
use gpuaas_planner::{ClusterJudgment, Difference, MemberView, WorkloadView, report::Judgment};
use gpuaas_wire::{bounds::one_line, task::TaskFailure};
use serde_json::Value;

use crate::{
    faults::{self, FaultRow, Subject},
    names,
    observed::{self, ObservedKubeNode},
};

/// The judgment of a member with which nothing is wrong.
const WELL: Judgment = Judgment { health: Health::Healthy, fault: None };

/// Returns the first server in service of a running workload: its apiserver must answer.
pub(crate) fn followed_through(workload: &WorkloadView) -> Option<MemberId> {
    if workload.lifecycle != Lifecycle::Running || !workload.secrets.contains_key(names::ADMIN_KUBECONFIG) {
        return None;
    }
    server(workload).map(|server| server.id)
}

fn server(workload: &WorkloadView) -> Option<&MemberView> {
    // The effects ask the first server that is not being removed.
    workload.component(names::SERVER).find(|member| member.is_present()).filter(|member| member.state.is_in_service())
}

/// Returns true if a running workload's server is in service and observed to be unwell, so that repeating a step does not help.
pub(crate) fn has_failed_server(workload: &WorkloadView) -> bool {
    workload.lifecycle == Lifecycle::Running && server(workload).is_some_and(MemberView::is_observed_unwell)
}

/// Judges the members in service.
pub(crate) fn judge(
    workload: &WorkloadView,
    observed: Result<&Value, &TaskFailure>,
) -> Result<ClusterJudgment, TaskFailure> {
    let observed = match observed {
        Ok(observed) => observed,
        Err(failure) => return Ok(silent(workload, failure)),
    };
    let cluster = observed::read(observed)?;
    let judged = |member: &MemberView| {
        let name = member.machine.name.as_str();
        let kube_node = cluster.kube_nodes.iter().find(|kube_node| kube_node.name == name);
        (member.id, of_member(member, kube_node, workload))
    };
    let members = workload.members.iter().filter(|member| member.state.is_in_service()).map(judged).collect();
    let drift = observed::compare(workload, observed)?.into_iter().filter(is_drift).collect();
    Ok(ClusterJudgment { members, drift })
}

/// Returns true for what a reconciliation sets again in the cluster: labels. A KubeNode that is absent or not ready changes the health of its
/// member. A cordon by hand is the tenant's, who sets it on purpose; a comparison shows it.
fn is_drift(difference: &Difference) -> bool {
    difference.member.is_some() && difference.field.starts_with("labels.")
}

fn of_member(member: &MemberView, kube_node: Option<&ObservedKubeNode>, workload: &WorkloadView) -> Judgment {
    let Some(kube_node) = kube_node else {
        let text = format!("the cluster has no KubeNode {}", member.machine.name);
        let evidence = Evidence::new(format!("cluster of {}", workload.name), None, &text);
        return degraded(&faults::KUBE_NODE_MISSING, member, workload, evidence);
    };
    if kube_node.ready {
        return WELL;
    }
    let reason = kube_node.not_ready_reason.clone().unwrap_or_else(|| "its condition Ready is not True".to_owned());
    let text = one_line(reason, Evidence::TEXT_BYTES_MAX);
    let evidence = Evidence::new(format!("KubeNode {}", member.machine.name), kube_node.ready_since, &text);
    degraded(&faults::KUBE_NODE_NOT_READY, member, workload, evidence)
}

/// Judges a cluster that could not be asked: only a failure that shows that its apiserver does not serve is a fault of the server.
fn silent(workload: &WorkloadView, failure: &TaskFailure) -> ClusterJudgment {
    let is_of_cluster = matches!(failure.code, Code::ClusterUnreachable | Code::ClusterNotReady);
    let server = server(workload).filter(|_| is_of_cluster);
    let judged = |server: &MemberView| {
        let source = format!("cluster of {}", workload.name);
        let text = one_line(failure.message.clone(), Evidence::TEXT_BYTES_MAX);
        let evidence = Evidence::new(source, None, &text);
        (server.id, degraded(&faults::CLUSTER_UNREACHABLE, server, workload, evidence))
    };
    ClusterJudgment { members: server.into_iter().map(judged).collect(), drift: Vec::new() }
}

fn degraded(row: &FaultRow, member: &MemberView, workload: &WorkloadView, evidence: Evidence) -> Judgment {
    let fault: Fault = row.fault(&Subject::of(member, workload), Some(evidence));
    Judgment { health: Health::Degraded, fault: Some(fault) }
}

#[cfg(test)]
mod tests;
