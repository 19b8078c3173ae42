//! Debounces what a cluster shows of its members: an unwell member counts only once it has been unwell for some time.
//!
//! - A member counts as unwell after [`UNWELL_AFTER`], or after [`SILENT_AFTER`] if the reason is that the cluster does not answer.
//! - A member that is seen healthy counts as healthy at once.
//! - While the cluster does not answer, what it showed before neither clears nor begins to count.

use std::{collections::BTreeMap, time::Duration};

use gpuaas_model::{MemberId, Timestamp};

use crate::{judgments::is_unwell, report::Judgment};

/// How long a cluster must show a member as unwell before it counts. A kubelet that restarts, or a network that is set up again, is Ready
/// within seconds; Kubernetes itself waits about 44 s before it shows that a kubelet is silent.
pub const UNWELL_AFTER: Duration = Duration::from_secs(10);
/// How long a cluster must fail to answer before it counts. An apiserver restarts within 4 to 9 s (measured), on slow machines in three times
/// that.
pub const SILENT_AFTER: Duration = Duration::from_secs(30);

/// The last judgment of a member.
#[derive(Clone, Debug, PartialEq)]
struct Observation {
    since: Timestamp,
    /// Time from which it counts.
    counts_at: Timestamp,
    judgment: Judgment,
    /// True if the cluster did not answer.
    is_silence: bool,
}

/// What a cluster has shown of its members since it is followed.
#[derive(Clone, Debug, Default)]
pub struct ClusterHealth {
    observations: BTreeMap<MemberId, Observation>,
    /// True if the cluster answered last.
    answers: bool,
}

impl ClusterHealth {
    /// Records the app's judgments of what the cluster showed at `now`. Forgets members that are missing in `members`.
    pub fn record_answer(&mut self, members: &[(MemberId, Judgment)], now: Timestamp) {
        self.answers = true;
        let before = std::mem::take(&mut self.observations);
        for (member, judgment) in members {
            let earlier = before.get(member).filter(|earlier| !earlier.is_silence);
            self.observations.insert(*member, observation(earlier, judgment, UNWELL_AFTER, now));
        }
    }

    /// Records the app's judgments of the fact that the cluster did not answer at `now`. Keeps those of members that are missing in `members`.
    pub fn record_silence(&mut self, members: &[(MemberId, Judgment)], now: Timestamp) {
        self.answers = false;
        for (member, judgment) in members {
            let earlier = self.observations.get(member).filter(|earlier| earlier.is_silence);
            let observation = Observation { is_silence: true, ..observation(earlier, judgment, SILENT_AFTER, now) };
            self.observations.insert(*member, observation);
        }
    }

    /// Returns the judgments that count at `now`, without members whose judgment has not lasted long enough.
    pub fn confirmed(&self, now: Timestamp) -> BTreeMap<MemberId, Judgment> {
        let counts = |observation: &&Observation| self.is_known(observation) && observation.counts_at <= now;
        self.observations
            .iter()
            .filter(|(_, observation)| counts(observation))
            .map(|(member, observation)| (*member, dated(observation)))
            .collect()
    }

    /// Returns the time at which the next judgment begins to count; `None` if all that are known do.
    pub fn next_confirmed_at(&self, now: Timestamp) -> Option<Timestamp> {
        let known = self.observations.values().filter(|observation| self.is_known(observation));
        known.map(|observation| observation.counts_at).filter(|at| *at > now).min()
    }

    /// Returns true if the observation still holds: while the cluster does not answer, only silence does; afterwards, silence no longer does.
    const fn is_known(&self, observation: &Observation) -> bool {
        observation.is_silence != self.answers
    }
}

fn observation(earlier: Option<&Observation>, judgment: &Judgment, lasts: Duration, now: Timestamp) -> Observation {
    let judgment = judgment.clone();
    if !is_unwell(&judgment) {
        return Observation { since: now, counts_at: now, judgment, is_silence: false };
    }
    let earlier = earlier.filter(|earlier| is_unwell(&earlier.judgment));
    let since = earlier.map_or(now, |earlier| earlier.since);
    Observation { since, counts_at: since.plus(lasts), judgment, is_silence: false }
}

/// Returns the judgment with the time since which it holds in its evidence: the time that the cluster names, but not later than the first
/// observation.
fn dated(Observation { since, judgment, .. }: &Observation) -> Judgment {
    let mut judgment = judgment.clone();
    if let Some(evidence) = judgment.fault.as_mut().and_then(|fault| fault.evidence.as_mut()) {
        evidence.at = Some(evidence.at.map_or(*since, |at| at.min(*since)));
    }
    judgment
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Evidence, Fault, FaultClass, Health, NextAction};
    use uuid::Uuid;

    use super::*;

    fn member(number: u128) -> MemberId {
        MemberId::from_uuid(Uuid::from_u128(number))
    }

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    const WELL: Judgment = Judgment { health: Health::Healthy, fault: None };

    fn unwell(code: &str, since: Option<Timestamp>) -> Judgment {
        let fault = Fault {
            code: code.to_owned(),
            class: FaultClass::Repairable,
            summary: code.to_owned(),
            evidence: Some(Evidence::new("KubeNode gpu-1", since, "why")),
            next: NextAction::text("look"),
        };
        Judgment { health: Health::Degraded, fault: Some(fault) }
    }

    /// What counts at a time: the health of each member, with the time in its evidence.
    fn confirmed(health: &ClusterHealth, now: Timestamp) -> Vec<(MemberId, Health, Option<Timestamp>)> {
        let evidence = |of: &Judgment| of.fault.as_ref().and_then(|fault| fault.evidence.as_ref()?.at);
        health.confirmed(now).iter().map(|(member, of)| (*member, of.health, evidence(of))).collect()
    }

    #[test]
    fn unwell_member_counts_after_ten_seconds_and_a_healthy_one_at_once() {
        let (first, second) = (member(1), member(2));
        let mut health = ClusterHealth::default();
        assert!(health.confirmed(at(0)).is_empty(), "nothing was seen");
        health.record_answer(&[(first, unwell("kube_node_not_ready", None)), (second, WELL)], at(1));
        assert_eq!(confirmed(&health, at(1)), [(second, Health::Healthy, None)]);
        assert_eq!(health.next_confirmed_at(at(1)), Some(at(11)));
        // Another reason does not begin the time again.
        health.record_answer(&[(first, unwell("kube_node_missing", None)), (second, WELL)], at(9));
        assert_eq!(confirmed(&health, at(10)).len(), 1);
        assert_eq!(confirmed(&health, at(11))[0], (first, Health::Degraded, Some(at(1))));
        assert_eq!(health.next_confirmed_at(at(11)), None);
        health.record_answer(&[(first, WELL), (second, WELL)], at(12));
        assert_eq!(confirmed(&health, at(12))[0], (first, Health::Healthy, None));
    }

    #[test]
    fn member_that_recovers_meanwhile_begins_again() {
        let first = member(1);
        let mut health = ClusterHealth::default();
        for second in [0, 6, 12, 18] {
            health.record_answer(&[(first, unwell("kube_node_not_ready", None))], at(second));
            assert!(confirmed(&health, at(second + 5)).is_empty(), "it is well in between");
            health.record_answer(&[(first, WELL)], at(second + 5));
        }
    }

    #[test]
    fn silent_cluster_neither_clears_nor_confirms_what_it_showed() {
        let (server, agent) = (member(1), member(2));
        let mut health = ClusterHealth::default();
        health.record_answer(&[(server, WELL), (agent, unwell("kube_node_not_ready", None))], at(0));
        health.record_silence(&[(server, unwell("cluster_unreachable", None))], at(5));
        assert!(confirmed(&health, at(20)).is_empty(), "nothing is known of either");
        health.record_silence(&[(server, unwell("cluster_unreachable", None))], at(20));
        assert_eq!(health.next_confirmed_at(at(20)), Some(at(35)));
        assert_eq!(confirmed(&health, at(35)), [(server, Health::Degraded, Some(at(5)))]);
        health.record_answer(&[(server, WELL), (agent, unwell("kube_node_not_ready", None))], at(40));
        let expected = [(server, Health::Healthy, None), (agent, Health::Degraded, Some(at(0)))];
        assert_eq!(confirmed(&health, at(40)), expected, "it was seen so before and after");
    }

    #[test]
    fn failure_that_says_nothing_about_the_cluster_confirms_nothing() {
        let server = member(1);
        let mut health = ClusterHealth::default();
        health.record_answer(&[(server, WELL)], at(0));
        health.record_silence(&[], at(1));
        assert!(confirmed(&health, at(100)).is_empty() && health.next_confirmed_at(at(1)).is_none());
    }

    #[test]
    fn member_that_the_app_no_longer_judges_is_forgotten() {
        let first = member(1);
        let mut health = ClusterHealth::default();
        health.record_answer(&[(first, unwell("kube_node_not_ready", None))], at(0));
        health.record_answer(&[], at(5));
        health.record_answer(&[(first, unwell("kube_node_not_ready", None))], at(6));
        assert!(confirmed(&health, at(15)).is_empty());
        assert_eq!(confirmed(&health, at(16)).len(), 1);
    }

    #[test]
    fn time_in_the_evidence_is_never_later_than_the_observation() {
        let first = member(1);
        let mut health = ClusterHealth::default();
        for (claimed, shown) in [(at(-30), at(-30)), (at(9_999_999), at(0))] {
            health.record_answer(&[(first, WELL)], at(0));
            health.record_answer(&[(first, unwell("kube_node_not_ready", Some(claimed)))], at(0));
            assert_eq!(confirmed(&health, at(10)), [(first, Health::Degraded, Some(shown))]);
        }
    }
}
