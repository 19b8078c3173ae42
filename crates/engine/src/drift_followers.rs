//! Which workloads' drift this process follows, and which checks each of them needs. In memory only: `drift` explains from which rows and
//! hints it is rebuilt.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gpuaas_model::{MemberId, WorkloadId};
use tokio::sync::Notify;

/// The drift checks that a workload needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToCheck {
    /// Members whose nodes may deviate.
    pub(crate) members: BTreeSet<MemberId>,
    /// Whether the cluster may deviate.
    pub(crate) cluster: bool,
}

impl ToCheck {
    pub(crate) fn merge(&mut self, more: Self) {
        self.members.extend(more.members);
        self.cluster |= more.cluster;
    }
}

/// The followed workloads.
#[derive(Default)]
pub(crate) struct DriftFollowers(Mutex<BTreeMap<WorkloadId, Entry>>);

#[derive(Default)]
struct Entry {
    to_check: ToCheck,
    /// True from a request until the follower takes it, also for a request without a check: for example after a row has changed.
    is_marked: bool,
    wake: Arc<Notify>,
}

impl DriftFollowers {
    /// Requests checks and wakes the workload's follower. If there is none, registers one and returns its wake-up handle: the caller must start
    /// it.
    pub(crate) fn add(&self, workload: WorkloadId, to_check: ToCheck) -> Option<Arc<Notify>> {
        let mut entries = self.entries();
        let is_new = !entries.contains_key(&workload);
        let entry = entries.entry(workload).or_default();
        entry.to_check.merge(to_check);
        entry.is_marked = true;
        entry.wake.notify_one();
        is_new.then(|| entry.wake.clone())
    }

    /// Takes the requested checks.
    pub(crate) fn take(&self, workload: WorkloadId) -> ToCheck {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&workload) else { return ToCheck::default() };
        entry.is_marked = false;
        std::mem::take(&mut entry.to_check)
    }

    /// Returns true if something was requested since the last [`Self::take`].
    pub(crate) fn is_marked(&self, workload: WorkloadId) -> bool {
        self.entries().get(&workload).is_some_and(|entry| entry.is_marked)
    }

    /// Removes the workload's follower unless something was requested since the last [`Self::take`]. Returns true if it was removed.
    pub(crate) fn end(&self, workload: WorkloadId) -> bool {
        let mut entries = self.entries();
        let is_idle = entries.get(&workload).is_none_or(|entry| !entry.is_marked);
        if is_idle {
            entries.remove(&workload);
        }
        is_idle
    }

    /// Removes a follower that ended early: by a panic, or because the engine stops.
    pub(crate) fn remove(&self, workload: WorkloadId) {
        self.entries().remove(&workload);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<WorkloadId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn follower_does_not_end_while_a_check_is_requested() {
        let (followers, id) = (DriftFollowers::default(), WorkloadId::from_uuid(Uuid::from_u128(1)));
        let member = |number| MemberId::from_uuid(Uuid::from_u128(number));
        let of = |number| ToCheck { members: [member(number)].into(), cluster: false };
        assert!(followers.add(id, of(1)).is_some(), "the first hint starts a follower");
        assert!(followers.add(id, of(2)).is_none(), "further ones wake it");
        assert!(!followers.end(id) && followers.is_marked(id));
        assert_eq!(followers.take(id).members, [member(1), member(2)].into());
        assert!(followers.end(id));
        assert!(followers.add(id, of(1)).is_some(), "it has ended, so another one is started");
    }
}
