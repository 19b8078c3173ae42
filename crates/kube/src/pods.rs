//! The pods of a KubeNode, and which of them a drain evicts: the rules of `kubectl drain`.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    calls::Call,
    cluster::Cluster,
    error::KubeError,
    json::AtMost,
    limits::{DAEMON_SETS_MAX, PAGE_BYTES_MAX, PODS_MAX, PODS_PER_PAGE},
    list::{Listed, Selection},
    object_name::ObjectName,
    text::bounded,
};

/// API path of the pods of all namespaces.
const PODS: &str = "/api/v1/pods";
/// Most owners of one pod; it has one.
const OWNERS_MAX: usize = 64;
/// Most volumes of one pod.
const VOLUMES_MAX: usize = 1_024;

/// What a drain may evict although something is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// Also evict pods that no controller replaces.
    pub force: bool,
    /// Also evict pods with `emptyDir` volumes, whose data is lost.
    pub delete_empty_dir_data: bool,
}

/// A pod, as far as a drain needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: ObjectName,
    /// Differs from the uid of an earlier pod of the same name.
    pub(crate) uid: String,
    /// The time at which a pod that is ending should be gone.
    pub(crate) ends_by: Option<Timestamp>,
    /// True if the kubelet runs the pod from a file; deleting it in the cluster would not end it.
    is_mirror: bool,
    /// True if all of its containers have ended for good.
    is_finished: bool,
    has_empty_dir: bool,
    controller: Option<Controller>,
}

/// The controller that replaces a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Controller {
    /// A DaemonSet, which places its pods on cordoned KubeNodes, too.
    DaemonSet(ObjectName),
    /// Any other.
    Other,
}

/// What a drain does with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It stays: its DaemonSet would replace it at once.
    StayOfDaemonSet,
    /// It stays: it is a mirror pod.
    StayAsMirror,
    /// It ends already.
    Await,
    /// It is evicted.
    Evict,
    /// It is evicted only with these options.
    Needs(DrainOptions),
}

/// DaemonSets by name, with true for those that exist.
pub(crate) type DaemonSets = BTreeMap<ObjectName, bool>;

impl Pod {
    /// Decides as `kubectl drain --ignore-daemonsets` does. A pod that is ending already needs no option.
    pub(crate) fn disposition(&self, options: DrainOptions, daemon_sets: &DaemonSets) -> Disposition {
        let orphaned = match &self.controller {
            Some(Controller::DaemonSet(name)) if !self.is_finished => {
                if daemon_sets.get(name).copied().unwrap_or_default() {
                    return Disposition::StayOfDaemonSet;
                }
                true
            }
            Some(Controller::DaemonSet(_) | Controller::Other) => false,
            None => !self.is_finished,
        };
        if self.is_mirror {
            return Disposition::StayAsMirror;
        }
        if self.ends_by.is_some() {
            return Disposition::Await;
        }
        let needs = DrainOptions {
            force: orphaned && !options.force,
            delete_empty_dir_data: self.has_empty_dir && !self.is_finished && !options.delete_empty_dir_data,
        };
        if needs == DrainOptions::default() { Disposition::Evict } else { Disposition::Needs(needs) }
    }

    /// Returns a pod of a ReplicaSet, for tests.
    #[cfg(test)]
    pub(crate) fn evictable(name: ObjectName, uid: &str) -> Self {
        let (uid, controller) = (uid.to_owned(), Some(Controller::Other));
        Self { name, uid, ends_by: None, is_mirror: false, is_finished: false, has_empty_dir: false, controller }
    }

    fn daemon_set(&self) -> Option<&ObjectName> {
        match &self.controller {
            Some(Controller::DaemonSet(name)) if !self.is_finished => Some(name),
            Some(Controller::DaemonSet(_) | Controller::Other) | None => None,
        }
    }
}

impl Cluster {
    /// Returns the pods that are bound to a KubeNode. Reads them page by page.
    pub(crate) async fn pods_on(&self, fields: &str) -> Result<Listed<Pod>, KubeError> {
        self.list::<FoundPod, Pod, PODS_PER_PAGE>(&pods(fields), PODS_MAX, FoundPod::checked).await
    }

    /// Returns which DaemonSets of these pods exist.
    pub(crate) async fn daemon_sets_of(&self, pods: &[Pod]) -> Result<DaemonSets, KubeError> {
        let mut found = DaemonSets::new();
        for name in pods.iter().filter_map(Pod::daemon_set) {
            if found.contains_key(name) {
                continue;
            }
            if found.len() == DAEMON_SETS_MAX {
                return Err(KubeError::Unreadable(format!("the pods have more than {DAEMON_SETS_MAX} DaemonSets")));
            }
            let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", name.namespace, name.name);
            let answer = self.calls.make(Call::get(path).metadata().up_to(PAGE_BYTES_MAX)).await?;
            let exists = answer.status != StatusCode::NOT_FOUND;
            if exists {
                answer.success()?;
            }
            found.insert(name.clone(), exists);
        }
        Ok(found)
    }
}

/// Returns the pods with this field selector, of all namespaces.
pub(crate) fn pods(fields: &str) -> Selection<'_> {
    Selection { path: PODS, fields, noun: "pods on this KubeNode" }
}

/// Returns the field selector for the pods of a KubeNode.
pub(crate) fn fields_on(kube_node: &str) -> String {
    format!("spec.nodeName={kube_node}")
}

/// The parts of a pod that are read.
#[derive(Default, Deserialize)]
pub(crate) struct FoundPod {
    #[serde(default)]
    metadata: FoundMetadata,
    #[serde(default)]
    spec: FoundSpec,
    #[serde(default)]
    status: FoundStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundMetadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    annotations: FoundAnnotations,
    #[serde(default)]
    owner_references: AtMost<FoundOwner, OWNERS_MAX>,
}

#[derive(Default, Deserialize)]
struct FoundAnnotations {
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct FoundOwner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
struct FoundSpec {
    #[serde(default)]
    volumes: AtMost<FoundVolume, VOLUMES_MAX>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundVolume {
    empty_dir: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct FoundStatus {
    #[serde(default)]
    phase: String,
}

impl FoundPod {
    fn checked(self) -> Result<Pod, KubeError> {
        let FoundMetadata { namespace, name, uid, deletion_timestamp, annotations, owner_references } = self.metadata;
        let invalid = |name: &str| KubeError::Unreadable(format!("{:?} is not a valid name of a pod", bounded(name)));
        let controller = match owner_references.0.into_iter().find(|owner| owner.controller) {
            Some(owner) if owner.kind == "DaemonSet" => {
                let of = ObjectName::new(&namespace, &owner.name).ok_or_else(|| invalid(&owner.name))?;
                Some(Controller::DaemonSet(of))
            }
            Some(_) => Some(Controller::Other),
            None => None,
        };
        Ok(Pod {
            name: ObjectName::new(&namespace, &name).ok_or_else(|| invalid(&name))?,
            uid: bounded(&uid),
            ends_by: deletion_timestamp,
            is_mirror: annotations.mirror.is_some(),
            is_finished: matches!(self.status.phase.as_str(), "Succeeded" | "Failed"),
            has_empty_dir: self.spec.volumes.0.iter().any(|volume| volume.empty_dir.is_some()),
            controller,
        })
    }
}

#[cfg(test)]
mod tests;
