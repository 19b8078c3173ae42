//! A plan as a person reads it: which step does what on which node, and what it interrupts. Two plans with the same outline do the same.
//!
//! It contains nothing that a preview cannot know, such as ids of members that do not exist yet, so a preview and the acceptance of the same
//! request have the same outline, at any time and in every replica.

mod differences;

pub use differences::DIFFERENCES_MAX;

use std::collections::BTreeSet;

use gpuaas_model::{
    AllocationId, MemberId, MemberStateName, Name, NodeId, OperationId, OperationKind, ProjectId, WorkloadId,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    app::{App, StepText},
    plan::{Plan, RecordKind, StepAction, StepKey, StepSpec},
    plan_digest::{PlanDigest, canonical_json, sha256_hex},
    request::OperationRequest,
    view::{MemberView, WorkloadView},
};

/// A plan as a person reads it. The order of the fields is that of the digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanOutline {
    /// Project of the workload.
    pub project: ProjectId,
    /// The workload; `None` if the operation would create it.
    pub workload: Option<WorkloadId>,
    /// Name of the workload.
    pub name: Name,
    /// Slug of its app.
    pub app: String,
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Parameters as JSON with sorted keys.
    pub parameters: String,
    /// The operation that this one resumes.
    pub resumes: Option<OperationId>,
    /// Version of the release.
    pub version: String,
    /// Files of the release with their SHA-256, by name.
    pub release: Vec<(String, String)>,
    /// SHA-256 of the settings as JSON with sorted keys. Settings may contain secrets, so they are not here themselves.
    pub settings_sha256: String,
    /// Members that the operation is about.
    pub members: Vec<OutlinedMember>,
    /// Steps in the order of the plan.
    pub steps: Vec<OutlinedStep>,
}

/// A member that an operation is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlinedMember {
    /// Name of the member.
    pub name: String,
    /// Its allocation; `None` on an external machine.
    pub allocation: Option<AllocationId>,
    /// Its node; `None` on an external machine.
    pub node: Option<NodeId>,
    /// Name of its machine.
    pub node_name: Name,
    /// Its state before the operation.
    pub state: MemberStateName,
}

/// A step as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlinedStep {
    /// Key of the step.
    pub key: StepKey,
    /// Phase of the app.
    pub phase: String,
    /// Name of its member; `None` for the workload as a whole.
    pub member: Option<String>,
    /// Name of the machine of its member.
    pub node_name: Option<Name>,
    /// Kind of the action and its name, for example `task rke2.stop`.
    pub action: String,
    /// Steps that must have succeeded first.
    pub needs: Vec<StepKey>,
    /// Steps that must have ended first.
    pub after: Vec<StepKey>,
    /// Longest time of one attempt, in milliseconds.
    pub deadline_ms: u64,
    /// What it interrupts, in one sentence.
    pub interrupts: Option<String>,
    /// What it does, in words. Not part of the digest: another version of the control plane may say the same in other words.
    #[serde(skip)]
    pub does: String,
}

impl PlanOutline {
    /// Outlines the plan that `app` made for the request. `targets` are the members that it is about.
    pub fn of(
        app: &dyn App,
        plan: &Plan,
        request: &OperationRequest,
        workload: &WorkloadView,
        targets: &[MemberId],
    ) -> Self {
        let artifacts = workload.release.artifacts.iter();
        let mut release: Vec<_> = artifacts.map(|file| (file.name.clone(), file.sha256.clone())).collect();
        release.sort();
        let is_target = |member: &&MemberView| targets.contains(&member.id);
        Self {
            project: workload.project,
            workload: Some(workload.id),
            name: workload.name.clone(),
            app: app.manifest().slug.clone(),
            kind: plan.kind,
            parameters: canonical_json(&Value::Object(request.parameters.clone())),
            resumes: None,
            version: workload.release.version.clone(),
            release,
            settings_sha256: sha256_hex(canonical_json(&workload.config).as_bytes()),
            members: workload.members.iter().filter(is_target).map(OutlinedMember::of).collect(),
            steps: plan.steps.iter().map(|step| OutlinedStep::of(app, step, request, workload)).collect(),
        }
    }

    /// Returns the digest: equal for two outlines exactly if [`PlanOutline::differences`] finds nothing between them.
    pub fn digest(&self) -> PlanDigest {
        PlanDigest::of(&self.canonical())
    }

    /// Returns the number of bytes of what the digest covers, about as many as the outline takes in memory.
    pub fn bytes(&self) -> usize {
        self.canonical().len()
    }

    /// Returns what the operation interrupts, in the order of its steps, each sentence once.
    pub fn interrupts(&self) -> Vec<String> {
        let mut said = BTreeSet::new();
        let sentences = self.steps.iter().filter_map(|step| step.interrupts.clone());
        sentences.filter(|sentence| said.insert(sentence.clone())).collect()
    }

    fn canonical(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an outline is plain data without maps")
    }
}

impl OutlinedMember {
    fn of(member: &MemberView) -> Self {
        Self {
            name: member.name.clone(),
            allocation: member.place.allocation(),
            node: member.place.node(),
            node_name: member.machine.name.clone(),
            state: member.state.name(),
        }
    }
}

impl OutlinedStep {
    fn of(app: &dyn App, step: &StepSpec, request: &OperationRequest, workload: &WorkloadView) -> Self {
        let member = step.member.and_then(|id| workload.member(id));
        let StepText { does, interrupts } = app.describe(step, request, workload);
        Self {
            key: step.key.clone(),
            phase: step.phase.clone(),
            member: member.map(|member| member.name.clone()),
            node_name: member.map(|member| member.machine.name.clone()),
            action: match &step.action {
                StepAction::NodeTask { task, .. } => format!("task {task}"),
                StepAction::ClusterCall { call } => format!("call {call}"),
                StepAction::Record { record: RecordKind::ConfirmPlacement } => "record confirm_placement".to_owned(),
                StepAction::Record { record: RecordKind::Milestone } => "record milestone".to_owned(),
                StepAction::Record { record: RecordKind::AwaitNode } => "record await_node".to_owned(),
                StepAction::Record { record: RecordKind::GiveUp } => "record give_up".to_owned(),
            },
            needs: step.needs.clone(),
            after: step.after.clone(),
            deadline_ms: step.deadline_ms,
            interrupts,
            does,
        }
    }
}

#[cfg(test)]
mod tests;
