//! How a cluster deviates from what the platform has set in it. Deviations are reported once they have lasted.

use std::time::Duration;

use gpuaas_model::Timestamp;
use gpuaas_planner::Difference;

/// How long a deviation must last before it is drift: a person may cordon a KubeNode for a moment, and a kubelet sets its labels again when it
/// starts.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// The deviations of one cluster over time.
#[derive(Debug, Default)]
pub(super) struct ClusterDrift {
    present: Vec<Difference>,
    /// Time since which exactly these differences exist; `None` if that is unknown.
    since: Option<Timestamp>,
    /// `None` if nothing was reported yet: differences that an earlier follower reported may be gone meanwhile.
    reported: Option<Vec<Difference>>,
}

impl ClusterDrift {
    /// Records what the cluster shows at `now`. Returns all differences if they must be reported: they have lasted, and differ from those that
    /// were reported last.
    pub(super) fn update(&mut self, drift: Vec<Difference>, now: Timestamp) -> Option<Vec<Difference>> {
        if self.since.is_none() || self.present != drift {
            (self.present, self.since) = (drift, Some(now));
        }
        self.confirmed_at().filter(|at| *at <= now)?;
        let dated = |of: &Difference| Difference { since: of.since.or(self.since), ..of.clone() };
        Some(self.present.iter().map(dated).collect())
    }

    /// Records that the present differences were reported.
    pub(super) fn mark_reported(&mut self) {
        self.reported = Some(self.present.clone());
    }

    /// Forgets since when the cluster deviates, and what was reported: it does not answer, or an operation changes it. After an operation
    /// others compare the cluster, too, so that the same deviation must be reported again if it returns.
    pub(super) fn reset(&mut self) {
        (self.since, self.reported) = (None, None);
    }

    /// Returns the time at which the present differences have lasted; `None` if they were reported or are unknown.
    pub(super) fn confirmed_at(&self) -> Option<Timestamp> {
        self.since.filter(|_| self.reported.as_ref() != Some(&self.present)).map(|since| since.plus(CONFIRM_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::NextAction;

    use super::*;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn deviation(field: &str) -> Difference {
        Difference {
            member: None,
            field: field.to_owned(),
            desired: "present".to_owned(),
            observed: "absent".to_owned(),
            since: None,
            action: NextAction::text("look"),
        }
    }

    /// The fields that are reported, each with the time since which it deviates.
    fn reported(drift: &mut ClusterDrift, fields: &[&str], now: Timestamp) -> Option<Vec<(String, Option<Timestamp>)>> {
        let found = drift.update(fields.iter().map(|field| deviation(field)).collect(), now)?;
        drift.mark_reported();
        Some(found.into_iter().map(|of| (of.field, of.since)).collect())
    }

    #[test]
    fn deviation_is_reported_once_it_has_lasted_and_so_is_its_end() {
        let mut drift = ClusterDrift::default();
        assert_eq!(reported(&mut drift, &[], at(0)), None);
        assert_eq!(reported(&mut drift, &["labels.rack"], at(1)), None);
        assert_eq!(drift.confirmed_at(), Some(at(11)));
        let expected = Some(vec![("labels.rack".to_owned(), Some(at(1)))]);
        assert_eq!(reported(&mut drift, &["labels.rack"], at(11)), expected);
        assert_eq!(reported(&mut drift, &["labels.rack"], at(99)), None, "it was reported already");
        assert_eq!(reported(&mut drift, &[], at(100)), None);
        assert_eq!(reported(&mut drift, &[], at(110)), Some(Vec::new()));
    }

    #[test]
    fn first_confirmed_state_is_reported_even_without_a_difference() {
        let mut drift = ClusterDrift::default();
        assert_eq!(reported(&mut drift, &[], at(0)), None);
        assert_eq!(drift.confirmed_at(), Some(at(10)));
        assert_eq!(
            reported(&mut drift, &[], at(10)),
            Some(Vec::new()),
            "an earlier follower may have reported differences"
        );
        assert_eq!((reported(&mut drift, &[], at(99)), drift.confirmed_at()), (None, None));
    }

    #[test]
    fn deviation_that_returns_after_an_operation_is_reported_again() {
        let mut drift = ClusterDrift::default();
        assert_eq!(reported(&mut drift, &["labels.rack"], at(0)), None);
        assert!(reported(&mut drift, &["labels.rack"], at(10)).is_some());
        drift.reset();
        assert_eq!(reported(&mut drift, &["labels.rack"], at(20)), None);
        assert!(reported(&mut drift, &["labels.rack"], at(30)).is_some());
    }

    #[test]
    fn time_begins_again_with_another_deviation_and_after_silence() {
        let mut drift = ClusterDrift::default();
        assert_eq!(reported(&mut drift, &["cordon"], at(0)), None);
        assert_eq!(reported(&mut drift, &["cordon", "labels.rack"], at(9)), None);
        assert_eq!(reported(&mut drift, &["cordon", "labels.rack"], at(18)), None);
        drift.reset();
        assert_eq!(drift.confirmed_at(), None, "a silent cluster has not drifted");
        assert_eq!(reported(&mut drift, &["cordon", "labels.rack"], at(20)), None);
        let found = reported(&mut drift, &["cordon", "labels.rack"], at(30)).expect("it has lasted");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn unreported_deviation_is_reported_again() {
        let mut drift = ClusterDrift::default();
        assert!(drift.update(vec![deviation("cordon")], at(0)).is_none());
        for now in [at(10), at(11)] {
            assert!(drift.update(vec![deviation("cordon")], now).is_some());
        }
    }
}
