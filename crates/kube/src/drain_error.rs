//! Why a drain did not empty its KubeNode: the pods that need a flag, and those that were left at its time limit.

use std::fmt;

use jiff::Timestamp;

use crate::{hold::Hold, object_name::ObjectName};

/// Most pods of one kind that an error names.
pub const PODS_NAMED_MAX: usize = 5;

/// Some things that are named, and the number of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Few<T> {
    /// The first, at most [`PODS_NAMED_MAX`].
    pub named: Vec<T>,
    /// The number of further ones.
    pub more: usize,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { named: Vec::new(), more: 0 }
    }
}

impl<T> Few<T> {
    /// Adds one, which is named if fewer than `named_max` are.
    pub(crate) fn add(&mut self, named_max: usize, item: impl FnOnce() -> T) {
        if self.named.len() < named_max { self.named.push(item()) } else { self.more += 1 }
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.more == 0
    }

    /// Returns the number of all.
    pub fn count(&self) -> usize {
        self.named.len() + self.more
    }
}

impl<T: fmt::Display> fmt::Display for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.named.iter().enumerate() {
            write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
        }
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}

/// The pods that can be evicted only with a flag. When it is returned by the first look at the KubeNode, no pod was evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct DrainRefusal {
    /// The KubeNode.
    pub kube_node: String,
    /// Pods that no controller replaces: they need `force`.
    pub unreplaced: Few<ObjectName>,
    /// Pods whose data in `emptyDir` volumes would be lost: they need `delete_empty_dir_data`.
    pub with_empty_dir: Few<ObjectName>,
}

impl fmt::Display for DrainRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pods on KubeNode {} are evicted only with a flag", self.kube_node)?;
        if !self.unreplaced.is_empty() {
            write!(f, "; with force, because no controller replaces them: {}", self.unreplaced)?;
        }
        if !self.with_empty_dir.is_empty() {
            let pods = &self.with_empty_dir;
            write!(f, "; with delete_empty_dir_data, because data in their emptyDir volumes is lost: {pods}")?;
        }
        Ok(())
    }
}

/// The pods that a drain had not evicted at its time limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("KubeNode {kube_node} is not drained after {seconds} s: {remains}")]
pub struct DrainBlock {
    /// The KubeNode.
    pub kube_node: String,
    /// Duration of the drain in seconds.
    pub seconds: u64,
    /// What is left.
    pub remains: Remains,
}

/// What is left of a drain's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Number of pods that the drain evicts.
    pub pods: usize,
    /// Number of those that have not ended.
    pub left: usize,
    /// Pods that cannot be evicted now.
    pub held: Few<HeldPod>,
    /// Pods that were evicted and have not ended.
    pub ending: Few<EndingPod>,
    /// Why the apiserver has not evicted a further pod yet.
    pub delay: Option<String>,
    /// Why and since when the KubeNode is not ready: its pods cannot end.
    pub not_ready: Option<String>,
}

/// A pod that cannot be evicted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPod {
    /// The pod.
    pub pod: ObjectName,
    /// What holds it.
    pub by: Hold,
}

/// A pod that was evicted and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndingPod {
    /// The pod.
    pub pod: ObjectName,
    /// The time at which its grace period ends, if the cluster has reported it.
    pub ends_by: Option<Timestamp>,
}

impl fmt::Display for HeldPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.pod, self.by)
    }
}

impl fmt::Display for EndingPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends_by {
            None => self.pod.fmt(f),
            Some(by) => write!(f, "{} (grace period until {by})", self.pod),
        }
    }
}

impl fmt::Display for Remains {
    /// For example `3 of 12 pods left; web/api-1 is held by budget web/api (allows 0 disruptions: 2 healthy, 2 needed) and 1 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pods left", self.left, self.pods)?;
        if !self.held.is_empty() {
            write!(f, "; {}", self.held)?;
        }
        if !self.ending.is_empty() {
            write!(f, "; evicted and not yet ended: {}", self.ending)?;
        }
        if let Some(why) = &self.not_ready {
            write!(f, "; {why}")?;
        }
        match &self.delay {
            Some(why) => write!(f, "; the next eviction waits: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Budget;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("web", name).unwrap()
    }

    #[test]
    fn every_kind_of_remaining_pod_is_named_up_to_the_limit() {
        let mut remains = Remains { pods: 12, left: 9, ..Remains::default() };
        for number in 0..7 {
            let by = Hold::Budget(Some(Budget { name: name("api"), status: None }));
            remains.held.add(2, || HeldPod { pod: name(&format!("api-{number}")), by });
        }
        let ends_by = Some("2026-07-01T10:00:00Z".parse().unwrap());
        remains.ending.add(2, || EndingPod { pod: name("db-0"), ends_by });
        remains.not_ready = Some("KubeNode gpu-2 is not ready".into());
        assert_eq!(
            remains.to_string(),
            "9 of 12 pods left; web/api-0 is held by budget web/api, web/api-1 is held by budget web/api and 5 more; \
             evicted and not yet ended: web/db-0 (grace period until 2026-07-01T10:00:00Z); KubeNode gpu-2 is not ready"
        );
    }

    #[test]
    fn a_refusal_names_the_pods_of_both_flags() {
        let mut refusal = DrainRefusal { kube_node: "gpu-2".into(), ..DrainRefusal::default() };
        refusal.unreplaced.add(PODS_NAMED_MAX, || name("bare"));
        for number in 0..6 {
            refusal.with_empty_dir.add(PODS_NAMED_MAX, || name(&format!("cache-{number}")));
        }
        let text = refusal.to_string();
        assert!(text.contains("with force, because no controller replaces them: web/bare;"), "{text}");
        assert!(text.ends_with("web/cache-3, web/cache-4 and 1 more"), "{text}");
    }
}
