//! What a drain knows of its pods: which must still be evicted, what holds them, and which are ending.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    drain_error::{DrainRefusal, EndingPod, HeldPod, PODS_NAMED_MAX, Remains},
    hold::Hold,
    pods::{DaemonSets, Disposition, DrainOptions, Pod},
};

/// The pods of a KubeNode, as a drain treats them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorted {
    /// Those that it evicts or that end already.
    pub(crate) leaving: Vec<Pod>,
    /// Number of pods of DaemonSets, which stay.
    pub(crate) of_daemon_sets: usize,
    /// Number of mirror pods, which stay.
    pub(crate) mirrors: usize,
}

/// Sorts the pods; fails with all that need an option which the drain does not have.
pub(crate) fn sort(
    pods: Vec<Pod>,
    daemon_sets: &DaemonSets,
    options: DrainOptions,
    kube_node: &str,
) -> Result<Sorted, DrainRefusal> {
    let mut sorted = Sorted::default();
    let mut refusal = DrainRefusal { kube_node: kube_node.to_owned(), ..DrainRefusal::default() };
    for pod in pods {
        match pod.disposition(options, daemon_sets) {
            Disposition::StayOfDaemonSet => sorted.of_daemon_sets += 1,
            Disposition::StayAsMirror => sorted.mirrors += 1,
            Disposition::Await | Disposition::Evict => sorted.leaving.push(pod),
            Disposition::Needs(options) => {
                if options.force {
                    refusal.unreplaced.add(PODS_NAMED_MAX, || pod.name.clone());
                }
                if options.delete_empty_dir_data {
                    refusal.with_empty_dir.add(PODS_NAMED_MAX, || pod.name.clone());
                }
            }
        }
    }
    if refusal.unreplaced.is_empty() && refusal.with_empty_dir.is_empty() { Ok(sorted) } else { Err(refusal) }
}

/// What a drain knows of its pods.
#[derive(Default)]
pub(crate) struct DrainState {
    /// The pods that have not ended, by uid.
    pods: BTreeMap<String, Leaving>,
    /// Number of pods that have ended.
    ended: usize,
    /// Why and since when the KubeNode is not ready.
    not_ready: Option<String>,
    /// Why the pods cannot be read at the moment.
    trouble: Option<String>,
    /// True once the pods were read.
    is_known: bool,
    /// No eviction is sent before this time.
    not_before: Option<Instant>,
}

struct Leaving {
    pod: Pod,
    step: Step,
    /// The time of the next eviction.
    again_at: Instant,
}

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// No eviction was answered yet.
    Waiting,
    Held(Hold),
    Delayed(String),
    Ending(Option<Timestamp>),
}

impl DrainState {
    /// Replaces what is known by a new list of the pods that are to leave.
    pub(crate) fn update(&mut self, leaving: Vec<Pod>, not_ready: Option<String>, now: Instant) {
        let listed: BTreeSet<&str> = leaving.iter().map(|pod| pod.uid.as_str()).collect();
        let before = self.pods.len();
        self.pods.retain(|uid, _| listed.contains(uid.as_str()));
        self.ended += before - self.pods.len();
        for pod in leaving {
            let known = self.pods.remove(&pod.uid);
            let (step, again_at) = match (pod.ends_by, known) {
                (Some(by), _) => (Step::Ending(Some(by)), now),
                // An accepted eviction that has left no trace is repeated.
                (None, None | Some(Leaving { step: Step::Ending(_), .. })) => (Step::Waiting, now),
                (None, Some(known)) => (known.step, known.again_at),
            };
            self.pods.insert(pod.uid.clone(), Leaving { pod, step, again_at });
        }
        (self.not_ready, self.trouble, self.is_known) = (not_ready, None, true);
    }

    /// Records why the pods cannot be read.
    pub(crate) fn set_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Records that a pod has ended.
    pub(crate) fn set_ended(&mut self, uid: &str) {
        if self.pods.remove(uid).is_some() {
            self.ended += 1;
        }
    }

    /// Records that a pod is ending, and by when it should be gone.
    pub(crate) fn set_ending(&mut self, uid: &str, by: Option<Timestamp>) {
        if let Some(leaving) = self.pods.get_mut(uid) {
            let known = match &leaving.step {
                Step::Ending(known) => *known,
                Step::Waiting | Step::Held(_) | Step::Delayed(_) => None,
            };
            leaving.step = Step::Ending(by.or(known));
        }
    }

    /// Records what holds a pod that is not ending. A hold whose budgets could not be read does not replace one that names them.
    pub(crate) fn set_held(&mut self, uid: &str, by: Hold, again_at: Instant) {
        let Some(leaving) = self.pods.get_mut(uid) else { return };
        leaving.again_at = again_at;
        let keeps = match &leaving.step {
            Step::Ending(_) => true,
            Step::Held(known) => known.is_identified() && !by.is_identified(),
            Step::Waiting | Step::Delayed(_) => false,
        };
        if !keeps {
            leaving.step = Step::Held(by);
        }
    }

    /// Records that the apiserver cannot evict a pod now; no eviction is sent before `again_at`.
    pub(crate) fn set_delayed(&mut self, uid: &str, why: String, again_at: Instant) {
        self.not_before = Some(again_at);
        if let Some(leaving) = self.pods.get_mut(uid) {
            leaving.again_at = again_at;
            if !matches!(leaving.step, Step::Ending(_)) {
                leaving.step = Step::Delayed(why);
            }
        }
    }

    /// Returns the pods whose eviction is due, those that have waited longest first, at most `max`.
    pub(crate) fn due(&self, now: Instant, max: usize) -> Vec<Pod> {
        if self.not_before.is_some_and(|time| time > now) {
            return Vec::new();
        }
        let mut due: Vec<&Leaving> = self.to_evict().filter(|leaving| leaving.again_at <= now).collect();
        due.sort_by_key(|leaving| leaving.again_at);
        due.into_iter().take(max).map(|leaving| leaving.pod.clone()).collect()
    }

    /// Returns the time of the next eviction.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let next = self.to_evict().map(|leaving| leaving.again_at).min()?;
        Some(self.not_before.map_or(next, |time| time.max(next)))
    }

    fn to_evict(&self) -> impl Iterator<Item = &Leaving> {
        self.pods.values().filter(|leaving| !matches!(leaving.step, Step::Ending(_)))
    }

    /// Returns true if the pods were read and all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_known && self.pods.is_empty()
    }

    /// Returns true if the drain waits for the pod with this uid.
    pub(crate) fn waits_for(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Returns the number of pods that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    /// Returns true if the pods are known and the apiserver answers.
    pub(crate) fn is_current(&self) -> bool {
        self.is_known && self.trouble.is_none()
    }

    /// Describes what the drain waits for, with one pod of each kind.
    pub(crate) fn describe(&self) -> String {
        match (&self.trouble, self.is_known) {
            (None, true) => self.remains(1).to_string(),
            (Some(trouble), true) => format!("{trouble}; {}", self.remains(1)),
            (Some(trouble), false) => trouble.clone(),
            (None, false) => "reading the pods".into(),
        }
    }

    /// Returns what is left, with the names of at most `named_max` pods of each kind.
    pub(crate) fn remains(&self, named_max: usize) -> Remains {
        let (left, pods) = (self.pods.len(), self.ended + self.pods.len());
        let mut remains = Remains { pods, left, ..Remains::default() };
        for Leaving { pod, step, .. } in self.pods.values() {
            let name = || pod.name.clone();
            match step {
                Step::Waiting => {}
                Step::Held(by) => remains.held.add(named_max, || HeldPod { pod: name(), by: by.clone() }),
                Step::Delayed(why) => {
                    remains.delay.get_or_insert_with(|| why.clone());
                }
                Step::Ending(by) => remains.ending.add(named_max, || EndingPod { pod: name(), ends_by: *by }),
            }
        }
        if !remains.ending.is_empty() {
            remains.not_ready.clone_from(&self.not_ready);
        }
        remains
    }
}

#[cfg(test)]
mod tests;
