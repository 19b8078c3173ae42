//! The plans that this process has shown lately, so that a refusal can say how the present plan differs from the one that a person has seen.
//!
//! They decide nothing: whether a digest still holds is decided by making the plan again. A plan that is not here, because another replica
//! has shown it or because newer ones took its place, costs only the comparison.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use gpuaas_model::ProjectId;
use gpuaas_planner::{PlanDigest, PlanOutline};

/// Most plans of one project that are kept.
const PER_PROJECT_MAX: usize = 16;
/// Most bytes of the plans of one project: two of the longest plans.
const BYTES_PER_PROJECT_MAX: usize = 2 * 1_024 * 1_024;
/// Most bytes of all plans.
const BYTES_MAX: usize = 32 * 1_024 * 1_024;

/// The plans that were shown lately, oldest first.
#[derive(Default)]
pub(crate) struct ShownPlans(Mutex<VecDeque<Shown>>);

struct Shown {
    digest: PlanDigest,
    outline: Arc<PlanOutline>,
    bytes: usize,
}

impl Shown {
    fn project(&self) -> ProjectId {
        self.outline.project
    }
}

impl ShownPlans {
    /// Keeps a plan that is about to be shown. Older ones of its project, and then the oldest ones of all, make room.
    pub(crate) fn keep(&self, digest: PlanDigest, outline: PlanOutline) {
        let shown = Shown { digest, bytes: outline.bytes(), outline: Arc::new(outline) };
        let project = shown.project();
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|kept| kept.project() != project || kept.digest != shown.digest);
        plans.push_back(shown);
        while let Some(oldest) = surplus(&plans, project) {
            plans.remove(oldest);
        }
    }

    /// Returns a plan that was shown to somebody in the project.
    pub(crate) fn find(&self, project: ProjectId, digest: &PlanDigest) -> Option<Arc<PlanOutline>> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans.iter().find(|kept| kept.project() == project && kept.digest == *digest);
        found.map(|kept| kept.outline.clone())
    }
}

/// Returns the position of the plan that must go, if the plans exceed a limit.
fn surplus(plans: &VecDeque<Shown>, project: ProjectId) -> Option<usize> {
    let of_project = || plans.iter().filter(|kept| kept.project() == project);
    let bytes: usize = of_project().map(|kept| kept.bytes).sum();
    if of_project().count() > PER_PROJECT_MAX || bytes > BYTES_PER_PROJECT_MAX {
        return plans.iter().position(|kept| kept.project() == project);
    }
    (plans.iter().map(|kept| kept.bytes).sum::<usize>() > BYTES_MAX).then_some(0)
}

#[cfg(test)]
mod tests {
    use gpuaas_model::OperationKind;
    use uuid::Uuid;

    use super::*;

    fn project(number: u128) -> ProjectId {
        ProjectId::from_uuid(Uuid::from_u128(number))
    }

    fn plan(of: ProjectId, number: usize, bytes: usize) -> PlanOutline {
        PlanOutline {
            project: of,
            workload: None,
            name: "train".parse().expect("a name"),
            app: "kit".to_owned(),
            kind: OperationKind::Deploy,
            parameters: format!("{number}{}", "x".repeat(bytes)),
            resumes: None,
            version: "1".to_owned(),
            release: Vec::new(),
            settings_sha256: String::new(),
            members: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn keep(plans: &ShownPlans, outline: PlanOutline) -> PlanDigest {
        let digest = outline.digest();
        plans.keep(digest.clone(), outline);
        digest
    }

    #[test]
    fn plan_is_found_in_its_own_project_only() {
        let plans = ShownPlans::default();
        let digest = keep(&plans, plan(project(1), 0, 0));
        assert_eq!(plans.find(project(1), &digest).expect("it is kept").digest(), digest);
        assert!(plans.find(project(2), &digest).is_none());
    }

    #[test]
    fn newest_plans_of_a_project_stay_and_others_are_untouched() {
        let plans = ShownPlans::default();
        let other = keep(&plans, plan(project(2), 0, 0));
        let digests: Vec<_> = (0..=PER_PROJECT_MAX).map(|number| keep(&plans, plan(project(1), number, 0))).collect();
        assert!(plans.find(project(1), &digests[0]).is_none());
        assert!(digests[1..].iter().all(|digest| plans.find(project(1), digest).is_some()));
        // The same plan again takes no other's place.
        keep(&plans, plan(project(1), 1, 0));
        assert!(digests[1..].iter().all(|digest| plans.find(project(1), digest).is_some()));
        assert!(plans.find(project(2), &other).is_some());
    }

    #[test]
    fn bytes_are_limited_for_a_project_and_for_all() {
        let plans = ShownPlans::default();
        let large = BYTES_PER_PROJECT_MAX / 2;
        let first = keep(&plans, plan(project(1), 0, large));
        let second = keep(&plans, plan(project(1), 1, large));
        assert!(plans.find(project(1), &first).is_none() && plans.find(project(1), &second).is_some());
        for other in 2..100 {
            keep(&plans, plan(project(other), 0, large));
        }
        let kept: usize = plans.0.lock().expect("not poisoned").iter().map(|kept| kept.bytes).sum();
        assert!(kept <= BYTES_MAX, "{kept}");
        assert!(plans.find(project(1), &second).is_none(), "the oldest went first");
    }
}
