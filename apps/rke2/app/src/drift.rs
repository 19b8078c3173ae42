//! How the node of a member deviates from what the platform wrote there, and what corrects it.

use gpuaas_app_rke2_tasks::{Deviation, DeviationKind, Rke2Expected, Rke2Observation, Rke2Observe, Rke2Role};
use gpuaas_model::{Code, NextAction};
use gpuaas_planner::{Difference, MemberView, WorkloadView, difference::OBSERVED_BYTES_MAX};
use gpuaas_wire::{bounds::one_line, task::TaskFailure};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::render::{configure, role};

/// Returns the parameters of the observation of a member's node, with the digests that its files must have; `None` if data is missing from
/// which the files are rendered.
pub(crate) fn observation(member: &MemberView, workload: &WorkloadView) -> Option<Rke2Observe> {
    let files = configure(member, workload).ok()?;
    let expected = Rke2Expected {
        config_sha256: hex::encode(Sha256::digest(files.config.as_bytes())),
        token_sha256: files.token.sha256,
        agent_token_sha256: files.agent_token.map(|token| token.sha256),
    };
    Some(Rke2Observe { role: files.role, expected: Some(expected) })
}

/// Returns the differences of an observation.
pub(crate) fn differences(
    member: &MemberView,
    workload: &WorkloadView,
    result: &Value,
) -> Result<Vec<Difference>, TaskFailure> {
    let observation = Rke2Observation::deserialize(result).map_err(|error| {
        TaskFailure::new(Code::TaskResultInvalid, format!("the observation of a node cannot be read: {error}"))
    })?;
    Ok(observation.deviations.into_iter().map(|deviation| difference(member, workload, deviation)).collect())
}

fn difference(member: &MemberView, workload: &WorkloadView, Deviation { kind, text }: Deviation) -> Difference {
    let (field, desired) = match kind {
        DeviationKind::ConfigChanged | DeviationKind::ConfigMissing => ("config", "as the platform wrote it"),
        DeviationKind::TokenChanged | DeviationKind::TokenMissing => ("token", "as the platform wrote it"),
        DeviationKind::UnitDisabled | DeviationKind::UnitMasked => ("unit", "starts at boot"),
        DeviationKind::UnitFileMissing => ("unit_file", "as installed"),
        DeviationKind::ProgramMissing => ("program", "as installed"),
        DeviationKind::KubeconfigMissing => ("kubeconfig", "as RKE2 wrote it"),
        DeviationKind::ForeignConfig => ("foreign_config", "only the platform's configuration"),
    };
    Difference {
        member: Some(member.name.clone()),
        field: field.to_owned(),
        desired: desired.to_owned(),
        observed: one_line(text, OBSERVED_BYTES_MAX),
        since: None,
        action: action(kind, member, workload),
    }
}

/// Returns what corrects a deviation. A reconciliation writes files and enables units; it starts and installs nothing.
fn action(kind: DeviationKind, member: &MemberView, workload: &WorkloadView) -> NextAction {
    let reconcile = |reason| NextAction::reconcile(reason, &workload.name);
    let repair = |reason| match role(member) {
        Rke2Role::Server => NextAction::repair_control_plane(reason, &workload.name),
        Rke2Role::Agent => NextAction::repair_member(reason, &workload.name, &member.name),
    };
    match kind {
        DeviationKind::ConfigChanged
        | DeviationKind::ConfigMissing
        | DeviationKind::TokenChanged
        | DeviationKind::TokenMissing => reconcile("it writes the file again, which RKE2 reads at its next start"),
        DeviationKind::UnitDisabled | DeviationKind::UnitMasked => reconcile("it enables the unit"),
        DeviationKind::UnitFileMissing | DeviationKind::ProgramMissing => repair("it installs the release again"),
        // The control plane never gives away its own copy.
        DeviationKind::KubeconfigMissing => repair("RKE2 writes its kubeconfig when it starts"),
        DeviationKind::ForeignConfig => {
            let after = format!("after the operator has removed it from {}", member.machine.name);
            NextAction::compare_again(&after, &workload.name)
        }
    }
}

#[cfg(test)]
mod tests;
