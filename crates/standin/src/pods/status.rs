//! What a pod's object says, and what its status becomes. Pure.
//!
//! A pod has no address, because it has no network. Its containers are marked `stand-in://`, because no container runs.

use serde_json::{Value, json};

use crate::version::CONTAINER_RUNTIME;

/// A pod's grace period if its object has none: the default of Kubernetes.
const GRACE_SECONDS: u64 = 30;

/// State that a status reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The process runs, and was restarted this often.
    Running { restarts: u64 },
    /// The process ended by itself and is started again later.
    BackOff { restarts: u64 },
    /// The pod was deleted and its process has ended.
    Ended { restarts: u64 },
}

/// A pod as the apiserver sent it.
#[derive(Clone, Debug)]
pub(super) struct Pod(pub(super) Value);

impl Pod {
    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub(super) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub(super) fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// The API path of the pod.
    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace(), self.name())
    }

    /// Whether the pod is to end.
    pub(super) fn is_deleted(&self) -> bool {
        self.0["metadata"].get("deletionTimestamp").is_some()
    }

    /// Whether all its containers have ended for good.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.text("/status/phase"), "Succeeded" | "Failed")
    }

    /// Seconds between SIGTERM and SIGKILL.
    pub(super) fn grace_seconds(&self) -> u64 {
        let given = &self.0["metadata"]["deletionGracePeriodSeconds"];
        given.as_u64().unwrap_or(GRACE_SECONDS)
    }

    /// How often it was restarted; none if it was never started.
    pub(super) fn restarts(&self) -> Option<u64> {
        let first = self.0.pointer("/status/containerStatuses/0")?;
        first["containerID"].as_str().filter(|id| !id.is_empty())?;
        Some(first["restartCount"].as_u64().unwrap_or_default())
    }

    /// Whether its status reports `state`.
    pub(super) fn reports(&self, state: State) -> bool {
        let State::Running { restarts } = state else { return false };
        let ready = self.condition("Ready").is_some_and(|condition| condition["status"] == "True");
        ready && self.text("/status/phase") == "Running" && self.restarts() == Some(restarts)
    }

    fn condition(&self, kind: &str) -> Option<&Value> {
        let conditions = self.0.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind)
    }

    /// The patch that makes the status report `state`, at the time `now` (RFC 3339).
    pub(super) fn patch(&self, state: State, address: &str, now: &str) -> Value {
        let (phase, ready) = match state {
            State::Running { .. } => ("Running", "True"),
            State::BackOff { .. } => ("Running", "False"),
            State::Ended { .. } => ("Succeeded", "False"),
        };
        let condition = |kind: &str, status: &str| {
            let kept = self.condition(kind).filter(|known| known["status"] == status);
            let since = kept.map_or(json!(now), |known| known["lastTransitionTime"].clone());
            json!({ "type": kind, "status": status, "lastTransitionTime": since, "lastProbeTime": null })
        };
        let started = self.0.pointer("/status/startTime").cloned().unwrap_or_else(|| json!(now));
        json!({
            "metadata": { "uid": self.uid() },
            "status": {
                "phase": phase,
                "observedGeneration": self.0["metadata"]["generation"],
                "startTime": started,
                "hostIP": address,
                "hostIPs": [{ "ip": address }],
                "conditions": [
                    condition("PodReadyToStartContainers", "True"),
                    condition("Initialized", "True"),
                    condition("Ready", ready),
                    condition("ContainersReady", ready),
                    condition("PodScheduled", "True"),
                ],
                "initContainerStatuses": self.containers("initContainers", State::Ended { restarts: 0 }, now),
                "containerStatuses": self.containers("containers", state, now),
            },
        })
    }

    fn containers(&self, list: &str, state: State, now: &str) -> Vec<Value> {
        let listed = self.0["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        listed.iter().map(|container| self.container(container, state, now)).collect()
    }

    fn container(&self, container: &Value, state: State, now: &str) -> Value {
        let id = format!("{CONTAINER_RUNTIME}/{}/{}", self.uid(), container["name"].as_str().unwrap_or_default());
        let ended =
            json!({ "exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now, "containerID": id });
        let waits =
            json!({ "reason": "CrashLoopBackOff", "message": "the stand-in's process of this pod ended by itself" });
        let (is_running, restarts, shown) = match state {
            State::Running { restarts } => (true, restarts, json!({ "running": { "startedAt": now } })),
            State::BackOff { restarts } => (false, restarts, json!({ "waiting": waits })),
            State::Ended { restarts } => (false, restarts, json!({ "terminated": ended })),
        };
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": CONTAINER_RUNTIME,
            "containerID": id,
            "restartCount": restarts,
            "ready": is_running,
            "started": is_running,
            "state": shown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> Pod {
        Pod(json!({
            "metadata": { "name": "web-1", "namespace": "shop", "uid": "u-1", "generation": 3 },
            "spec": { "containers": [{ "name": "web", "image": "x/web:1" }] },
            "status": status,
        }))
    }

    /// The pod after the apiserver has merged the patch.
    fn after(pod: &Pod, state: State, now: &str) -> Pod {
        let mut object = pod.0.clone();
        object["status"] = pod.patch(state, "127.1.2.3", now)["status"].clone();
        Pod(object)
    }

    #[test]
    fn running_pod_is_ready_marked_as_the_stand_ins_and_without_address() {
        let now = "2026-01-02T03:04:05Z";
        let started = after(&pod(&json!({ "phase": "Pending" })), State::Running { restarts: 0 }, now);
        assert!(started.reports(State::Running { restarts: 0 }) && !started.reports(State::Running { restarts: 1 }));
        assert_eq!(started.restarts(), Some(0));
        let id = started.0.pointer("/status/containerStatuses/0/containerID").and_then(Value::as_str).unwrap();
        assert!(id.starts_with("stand-in://") && id.ends_with("/u-1/web"), "{id}");
        assert_eq!(started.0["status"].get("podIP"), None);
        assert_eq!(started.0["status"]["observedGeneration"], 3);
    }

    #[test]
    fn condition_keeps_its_time_until_it_changes() {
        let time = |pod: &Pod| pod.condition("Ready").map(|ready| ready["lastTransitionTime"].clone()).unwrap();
        let first = after(&pod(&json!({})), State::Running { restarts: 0 }, "2026-01-01T00:00:00Z");
        let again = after(&first, State::Running { restarts: 1 }, "2026-01-01T00:00:09Z");
        assert_eq!(time(&again), "2026-01-01T00:00:00Z");
        let failed = after(&again, State::BackOff { restarts: 1 }, "2026-01-01T00:00:10Z");
        assert_eq!(time(&failed), "2026-01-01T00:00:10Z");
        assert!(!failed.reports(State::Running { restarts: 1 }));
    }

    #[test]
    fn pod_that_never_ran_has_no_restarts_and_an_ended_one_is_finished() {
        assert_eq!(pod(&json!({ "phase": "Pending" })).restarts(), None);
        let ended = after(&pod(&json!({})), State::Ended { restarts: 2 }, "2026-01-01T00:00:00Z");
        assert!(ended.is_finished());
        assert_eq!(ended.restarts(), Some(2));
    }

    #[test]
    fn deletion_and_its_grace_period_are_read() {
        let mut object = pod(&json!({}));
        assert!(!object.is_deleted());
        assert_eq!(object.grace_seconds(), GRACE_SECONDS);
        object.0["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object.0["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert!(object.is_deleted());
        assert_eq!(object.grace_seconds(), 0);
    }
}
