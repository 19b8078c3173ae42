//! What the app's effects observe of a cluster, and how it deviates from what the workload's rows want.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_model::{Code, MemberState, NextAction, Timestamp};
use gpuaas_planner::{Difference, MemberView, WorkloadView, difference::OBSERVED_BYTES_MAX};
use gpuaas_wire::{bounds::one_line, task::TaskFailure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{config::Config, names};

/// Most KubeNodes without a member that are named; more are counted.
const STRANGERS_MAX: usize = 16;

/// The KubeNodes of a cluster. The tenant controls what its apiserver says: texts are bounded, and nothing here is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedCluster {
    /// The KubeNodes.
    pub kube_nodes: Vec<ObservedKubeNode>,
}

/// A KubeNode as its cluster shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedKubeNode {
    /// Name of the KubeNode.
    pub name: String,
    /// True if it is ready.
    pub ready: bool,
    /// Why it is not ready; `None` if it is ready.
    pub not_ready_reason: Option<String>,
    /// Time since which it is ready or not, if the cluster says so.
    pub ready_since: Option<Timestamp>,
    /// True if it is cordoned.
    pub unschedulable: bool,
    /// Version of its kubelet, for example `v1.36.3+rke2r1`.
    pub kubelet_version: String,
    /// The labels that are compared ([`compared_labels`]).
    pub labels: BTreeMap<String, String>,
}

/// Returns the keys of the labels that a comparison looks at: those of the tenant's settings.
pub fn compared_labels(workload: &WorkloadView) -> BTreeSet<String> {
    Config::read(&workload.config).map(|config| config.into_node_labels().into_keys().collect()).unwrap_or_default()
}

/// Parses what the effects observed.
pub(crate) fn read(observed: &Value) -> Result<ObservedCluster, TaskFailure> {
    ObservedCluster::deserialize(observed).map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::fmt::Display) -> TaskFailure {
    TaskFailure::new(Code::Internal, format!("what was observed of the cluster cannot be read: {error}"))
}

/// Returns how the observed cluster deviates.
pub(crate) fn compare(workload: &WorkloadView, observed: &Value) -> Result<Vec<Difference>, TaskFailure> {
    let observed = read(observed)?;
    let labels = Config::read(&workload.config).map_err(|error| unreadable(&error))?.into_node_labels();
    let comparison = Comparison { workload, labels };
    let mut differences = Vec::new();
    // The cluster has a KubeNode of every member in service.
    for member in workload.members.iter().filter(|member| member.state.is_in_service()) {
        match observed.kube_nodes.iter().find(|kube_node| kube_node.name == member.machine.name.as_str()) {
            Some(kube_node) => differences.extend(comparison.of(member, kube_node)),
            None => differences.push(comparison.absent(member)),
        }
    }
    differences.extend(comparison.strangers(&observed));
    Ok(differences)
}

struct Comparison<'a> {
    workload: &'a WorkloadView,
    labels: BTreeMap<String, String>,
}

impl Comparison<'_> {
    fn of(&self, member: &MemberView, kube_node: &ObservedKubeNode) -> Vec<Difference> {
        let ready = (!kube_node.ready).then(|| Difference {
            since: kube_node.ready_since,
            ..self.difference(
                member,
                "ready",
                "ready",
                self.not_ready(kube_node),
                self.repair(member, "it is not ready"),
            )
        });
        let version = &self.workload.release.version;
        let version = (kube_node.kubelet_version != *version).then(|| {
            let action = self.repair(member, "it runs another version");
            self.difference(member, "version", version, kube_node.kubelet_version.clone(), action)
        });
        let labels = self.labels.iter().filter(|(key, value)| kube_node.labels.get(*key) != Some(value));
        let labels = labels.map(|(key, value)| {
            let observed = kube_node.labels.get(key).cloned().unwrap_or_else(|| "absent".to_owned());
            let action = NextAction::reconcile("it sets the labels again", &self.workload.name);
            self.difference(member, &format!("labels.{key}"), value, observed, action)
        });
        ready.into_iter().chain(self.cordon(member, kube_node)).chain(version).chain(labels).collect()
    }

    fn not_ready(&self, kube_node: &ObservedKubeNode) -> String {
        kube_node.not_ready_reason.clone().unwrap_or_else(|| "not ready".to_owned())
    }

    /// A member is cordoned while it is drained and afterwards. A ready one takes pods, also if the platform itself has cordoned its KubeNode.
    fn cordon(&self, member: &MemberView, kube_node: &ObservedKubeNode) -> Option<Difference> {
        let is_wanted = match member.state {
            MemberState::Draining { .. } | MemberState::Drained { .. } => true,
            MemberState::Ready { .. } => false,
            MemberState::Pending
            | MemberState::Preparing { .. }
            | MemberState::Bootstrapping { .. }
            | MemberState::Joining { .. }
            | MemberState::Stopped { .. }
            | MemberState::Removing { .. }
            | MemberState::Removed
            | MemberState::Failed { .. } => return None,
        };
        if is_wanted == kube_node.unschedulable {
            return None;
        }
        let word = |cordoned: bool| if cordoned { "cordoned" } else { "schedulable" };
        let is_own = self.workload.facts.get(&names::cordoned(&member.name)) == Some(&Value::Bool(true));
        let reason = match (is_wanted, is_own) {
            (true, _) => "it takes pods already",
            (false, true) => "the platform has cordoned it, and no operation has lifted that",
            (false, false) => "it was not cordoned through the platform",
        };
        let action = NextAction::uncordon_member(reason, &self.workload.name, &member.name);
        let observed = word(kube_node.unschedulable).to_owned();
        Some(self.difference(member, "cordon", word(is_wanted), observed, action))
    }

    /// A kubelet registers its KubeNode only when it starts, so a reconciliation, which restarts nothing, does not bring it back.
    fn absent(&self, member: &MemberView) -> Difference {
        let action = self.repair(member, "its KubeNode comes back when its service starts again");
        self.difference(member, "kube_node", "present", "absent".to_owned(), action)
    }

    /// Returns the KubeNodes that belong to no member.
    fn strangers(&self, observed: &ObservedCluster) -> Vec<Difference> {
        let of_members: BTreeSet<&str> = self
            .workload
            .members
            .iter()
            .filter(|member| member.state != MemberState::Removed)
            .map(|member| member.machine.name.as_str())
            .collect();
        let strangers: Vec<&str> = observed
            .kube_nodes
            .iter()
            .map(|kube_node| kube_node.name.as_str())
            .filter(|name| !of_members.contains(name))
            .collect();
        let more = strangers.len().saturating_sub(STRANGERS_MAX);
        let named = strangers.iter().take(STRANGERS_MAX).map(|name| format!("present: {name}"));
        let counted = (more > 0).then(|| format!("{more} more"));
        let action = || NextAction::use_kubectl("delete it, unless you added it,", &self.workload.name);
        named
            .chain(counted)
            .map(|observed| Difference {
                member: None,
                field: "kube_node".to_owned(),
                desired: "only KubeNodes of members".to_owned(),
                observed: one_line(observed, OBSERVED_BYTES_MAX),
                since: None,
                action: action(),
            })
            .collect()
    }

    fn repair(&self, member: &MemberView, reason: &str) -> NextAction {
        NextAction::repair_member(reason, &self.workload.name, &member.name)
    }

    fn difference(
        &self,
        member: &MemberView,
        field: &str,
        desired: &str,
        observed: String,
        action: NextAction,
    ) -> Difference {
        Difference {
            member: Some(member.name.clone()),
            field: field.to_owned(),
            desired: desired.to_owned(),
            observed: one_line(observed, OBSERVED_BYTES_MAX),
            since: None,
            action,
        }
    }
}

#[cfg(test)]
mod tests;
