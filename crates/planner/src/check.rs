//! Checks a plan before any of it runs. A plan with findings is never executed.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_model::MemberState;

use crate::{
    plan::{FailureScope, Plan, StepAction, StepKey, StepSpec},
    view::MemberView,
};

/// A defect of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// The plan has no steps.
    #[error("the plan has no steps")]
    Empty,
    /// The plan has more than [`Plan::STEPS_MAX`] steps.
    #[error("the plan has {0} steps, more than are allowed")]
    TooLong(usize),
    /// Two steps have the same key.
    #[error("two steps are named {0}")]
    Repeated(StepKey),
    /// A need that no earlier step meets: unknown, later, or circular.
    #[error("{step} needs {need}, which is not an earlier step")]
    UnmetNeed {
        /// Key of the step.
        step: StepKey,
        /// Key that it needs.
        need: StepKey,
    },
    /// A step without a deadline.
    #[error("{0} has no deadline")]
    NoDeadline(StepKey),
    /// A step that allows no attempt.
    #[error("{0} allows no attempt")]
    NoAttempt(StepKey),
    /// A step for a member that the workload does not have, or that was removed.
    #[error("{0} is for a member that is not part of the workload")]
    UnknownMember(StepKey),
    /// A task on another node than that of the step's member.
    #[error("{0} is a task on another node than its member's")]
    WrongNode(StepKey),
    /// A step whose failure counts for a component to which no member of the step belongs.
    #[error("{0} counts as a failure of another component than its member's")]
    WrongComponent(StepKey),
    /// A phase that the app does not have, or that comes earlier than the phase of a step that it needs.
    #[error("{step} is in phase {phase}, which is out of order")]
    PhaseOutOfOrder {
        /// Key of the step.
        step: StepKey,
        /// Phase of the step.
        phase: String,
    },
}

/// Returns every defect of `plan`. Every step's needs must precede it, so that a plan can be read from top to bottom. `phases` are the
/// app's, in order; an empty list disables the check of phases. Steps must be for `members` that are not removed, and tasks must run on the
/// nodes of these members.
pub fn check(plan: &Plan, phases: &[String], members: &[MemberView]) -> Vec<Finding> {
    let placed = plan.steps.iter().flat_map(|step| [misplaced(step, members), miscounted(step, members)]);
    let mut findings: Vec<Finding> = placed.flatten().collect();
    if plan.steps.is_empty() {
        findings.push(Finding::Empty);
    }
    if plan.steps.len() > Plan::STEPS_MAX {
        findings.push(Finding::TooLong(plan.steps.len()));
    }
    let order: BTreeMap<&str, usize> = phases.iter().enumerate().map(|(at, phase)| (phase.as_str(), at)).collect();
    let mut seen: BTreeMap<&StepKey, usize> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for step in &plan.steps {
        let phase = order.get(step.phase.as_str()).copied();
        let mut floor = 0;
        for need in step.needs.iter().chain(&step.after) {
            match seen.get(need) {
                Some(&needed_phase) => floor = floor.max(needed_phase),
                None => findings.push(Finding::UnmetNeed { step: step.key.clone(), need: need.clone() }),
            }
        }
        if !phases.is_empty() && phase.is_none_or(|phase| phase < floor) {
            findings.push(Finding::PhaseOutOfOrder { step: step.key.clone(), phase: step.phase.clone() });
        }
        if step.deadline_ms == 0 {
            findings.push(Finding::NoDeadline(step.key.clone()));
        }
        if step.retry.attempts_max == 0 {
            findings.push(Finding::NoAttempt(step.key.clone()));
        }
        if !names.insert(&step.key) {
            findings.push(Finding::Repeated(step.key.clone()));
        }
        seen.insert(&step.key, phase.unwrap_or(0));
    }
    findings
}

/// Returns a defect of the step's member or node.
fn misplaced(step: &StepSpec, members: &[MemberView]) -> Option<Finding> {
    let is_part = |member: &&MemberView| member.state != MemberState::Removed;
    let member = step.member.map(|id| members.iter().filter(is_part).find(|member| member.id == id));
    match (member, &step.action) {
        (Some(None), _) => Some(Finding::UnknownMember(step.key.clone())),
        (Some(Some(member)), StepAction::NodeTask { node, .. }) if member.place.node() != Some(*node) => {
            Some(Finding::WrongNode(step.key.clone()))
        }
        (None, StepAction::NodeTask { .. }) => Some(Finding::WrongNode(step.key.clone())),
        (Some(Some(_)) | None, _) => None,
    }
}

/// Returns a finding if the failure of the step counts for a component that is not its member's.
fn miscounted(step: &StepSpec, members: &[MemberView]) -> Option<Finding> {
    let FailureScope::Component { component, .. } = &step.scope else { return None };
    let is_its = |member: &MemberView| Some(member.id) == step.member && member.component_key == *component;
    (!members.iter().any(is_its)).then(|| Finding::WrongComponent(step.key.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_steps::step;
    use gpuaas_model::OperationKind;

    fn phases() -> Vec<String> {
        vec!["first".into(), "second".into()]
    }

    #[test]
    fn valid_plan_has_no_findings() {
        let plan = Plan::new(OperationKind::Deploy).then(step("a", "first")).then(step("b", "second"));
        assert_eq!(check(&plan, &phases(), &[]), []);
    }

    #[test]
    fn each_defect_is_found() {
        let mut no_deadline = step("e", "second");
        no_deadline.deadline_ms = 0;
        let mut no_attempt = step("h", "second");
        no_attempt.retry.attempts_max = 0;
        let mut circular = step("c", "second");
        circular.needs = vec![StepKey::named("c")];
        let plan = Plan::new(OperationKind::Deploy)
            .then(step("a", "second"))
            .then(step("a", "first"))
            .with(no_deadline)
            .with(no_attempt)
            .with(circular);
        let found: Vec<String> = check(&plan, &phases(), &[]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "a is in phase first, which is out of order",
                "two steps are named a",
                "e has no deadline",
                "h allows no attempt",
                "c needs c, which is not an earlier step",
            ]
        );
        assert_eq!(check(&Plan::new(OperationKind::Deploy), &[], &[]), [Finding::Empty]);
    }

    #[test]
    fn failure_counts_only_for_the_component_of_the_member() {
        let mut of_none = step("a", "first");
        of_none.scope = FailureScope::Component { component: "server".to_owned(), may_fail: 1 };
        let plan = Plan::new(OperationKind::Deploy).then(of_none);
        assert_eq!(check(&plan, &phases(), &[]), [Finding::WrongComponent(StepKey::named("a"))]);
    }

    #[test]
    fn number_of_steps_is_limited() {
        let of = |steps: usize| {
            let steps = (0..steps).map(|number| step(&number.to_string(), "first"));
            check(&Plan { kind: OperationKind::Deploy, steps: steps.collect() }, &phases(), &[])
        };
        assert_eq!(of(Plan::STEPS_MAX), []);
        assert_eq!(of(Plan::STEPS_MAX + 1), [Finding::TooLong(Plan::STEPS_MAX + 1)]);
    }
}
