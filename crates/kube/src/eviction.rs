//! Evicts one pod, and reads from the answer whether it ends, is held, or must be tried again.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    calls::{Answer, Call},
    cluster::Cluster,
    error::KubeError,
    events, json,
    json::AtMost,
    object_name::ObjectName,
    pods::Pod,
    text::bounded,
};

/// Pause before an eviction is tried again; kubectl waits 5 s.
pub(crate) const EVICT_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Longest pause that an apiserver can ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Most causes of a refused eviction that are read; there is one.
const CAUSES_MAX: usize = 16;

/// The apiserver's answer to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The pod ends.
    Accepted,
    /// The pod does not exist any more.
    Gone,
    /// A budget allows no disruption now; its name, if the answer has a valid one.
    Budget(Option<String>),
    /// Several budgets select the pod.
    SeveralBudgets,
    /// The apiserver refuses with this message.
    Refused(String),
    /// The apiserver cannot do it now.
    Later { why: String, after: Duration },
}

/// Kubernetes' object for the result of a request.
#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    status: String,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    causes: AtMost<Cause, CAUSES_MAX>,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl Status {
    fn cause(&self, reason: &str) -> Option<&Cause> {
        self.details.causes.0.iter().find(|cause| cause.reason == reason)
    }
}

impl Cluster {
    /// Asks the apiserver to evict exactly this pod, not a later one of the same name. Fails if trying again cannot help.
    pub(crate) async fn evict(&self, pod: &Pod) -> Result<Eviction, KubeError> {
        let ObjectName { namespace, name } = &pod.name;
        let target = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        match self.calls.make(Call::post(target, eviction_of(pod))).await {
            Ok(answer) if answer.status == StatusCode::UNAUTHORIZED => Err(answer.failure()),
            Ok(answer) => Ok(read(&answer)),
            Err(error) if events::is_transient(&error) => {
                Ok(Eviction::Later { why: error.to_string(), after: EVICT_AGAIN_AFTER })
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the request: the precondition is the pod's uid.
fn eviction_of(pod: &Pod) -> Value {
    let ObjectName { namespace, name } = &pod.name;
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "namespace": namespace, "name": name },
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    })
}

/// Reads the answer to an eviction. A `Status` of a failure counts under every HTTP status, as for kubectl.
fn read(answer: &Answer) -> Eviction {
    let status: Status = json::read(&answer.body).unwrap_or_default();
    let failed_quietly = answer.status.is_success() && status.status == "Failure";
    let code = match (failed_quietly, status.code) {
        (true, 300..) => status.code,
        (true, _) => 500,
        (false, _) => answer.status.as_u16(),
    };
    let message = || match status.message.as_str() {
        "" => format!("status {code} without a message"),
        message => bounded(message),
    };
    // The budget that a cause names: "The disruption budget api needs 2 healthy pods and has 2 currently".
    let budget = |cause: &Cause| cause.message.strip_prefix("The disruption budget ")?.split(' ').next().map(bounded);
    match code {
        200..=299 => Eviction::Accepted,
        404 => Eviction::Gone,
        429 => match status.cause("DisruptionBudget") {
            Some(cause) => Eviction::Budget(budget(cause)),
            // The apiserver's own flow control.
            None => {
                let after = answer.retry_after.unwrap_or(EVICT_AGAIN_AFTER);
                let why = "the apiserver has too many requests".to_owned();
                Eviction::Later { why, after: after.clamp(EVICT_AGAIN_AFTER, PAUSE_MAX) }
            }
        },
        403 if status.cause("NamespaceTerminating").is_some() => {
            Eviction::Refused("the namespace is being deleted".into())
        }
        403 if status.details.kind == "poddisruptionbudget" => Eviction::Budget(Some(bounded(&status.details.name))),
        500 if status.message.contains("more than one PodDisruptionBudget") => Eviction::SeveralBudgets,
        // 409: the pod changed meanwhile, or is already another one, which the watch shows.
        408 | 409 | 500.. => Eviction::Later { why: message(), after: EVICT_AGAIN_AFTER },
        _ => Eviction::Refused(message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<u64>, body: &str) -> Eviction {
        read(&Answer {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after.map(Duration::from_secs),
            body: body.to_owned().into(),
        })
    }

    fn with_cause(status: u16, reason: &str, message: &str) -> Eviction {
        let cause = serde_json::json!({"reason": reason, "message": message});
        let body: Value = serde_json::json!({"status": "Failure", "message": "no", "details": {"causes": [cause]}});
        answer(status, None, &body.to_string())
    }

    #[test]
    fn an_eviction_is_for_exactly_one_pod() {
        let eviction = eviction_of(&Pod::evictable(ObjectName::new("web", "api-1").unwrap(), "u1"));
        assert_eq!(eviction["deleteOptions"], serde_json::json!({ "preconditions": { "uid": "u1" } }));
        assert_eq!(eviction["metadata"], serde_json::json!({ "namespace": "web", "name": "api-1" }));
    }

    #[test]
    fn accepted_and_gone_pods_are_recognized() {
        assert_eq!(answer(201, None, r#"{"kind":"Status","status":"Success"}"#), Eviction::Accepted);
        assert_eq!(answer(200, None, "no json"), Eviction::Accepted);
        assert_eq!(answer(404, None, "{}"), Eviction::Gone);
    }

    #[test]
    fn a_budget_is_named_by_its_cause() {
        let held = |message| with_cause(429, "DisruptionBudget", message);
        let named = Eviction::Budget(Some("api".into()));
        assert_eq!(held("The disruption budget api needs 2 healthy pods and has 2 currently"), named);
        assert_eq!(held("The disruption budget api is still being processed by the server."), named);
        assert_eq!(held("another wording"), Eviction::Budget(None));
        let body = r#"{"status":"Failure","message":"no","details":{"name":"api","kind":"poddisruptionbudget"}}"#;
        assert_eq!(answer(403, None, body), named);
    }

    #[test]
    fn flow_control_is_no_budget_and_its_pause_is_limited() {
        let later = |retry_after| match answer(429, retry_after, "Too many requests, please try again later.") {
            Eviction::Later { after, .. } => after.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!([None, Some(0), Some(7), Some(u64::MAX)].map(later), [2, 2, 7, 30]);
    }

    #[test]
    fn several_budgets_are_recognized_under_both_statuses() {
        let body = r#"{"status":"Failure","code":500,"message":"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}"#;
        assert_eq!(answer(201, None, body), Eviction::SeveralBudgets);
        assert_eq!(answer(500, None, body), Eviction::SeveralBudgets);
    }

    #[test]
    fn troubles_of_the_apiserver_are_tried_again_and_refusals_are_quoted() {
        for status in [408, 409, 500, 502, 503, 504] {
            assert!(matches!(answer(status, None, r#"{"message":"x"}"#), Eviction::Later { .. }), "{status}");
        }
        let denied = answer(403, None, r#"{"message":"admission webhook \"m\" denied\nthe request"}"#);
        assert_eq!(denied, Eviction::Refused("admission webhook \"m\" denied the request".into()));
        let terminating = with_cause(403, "NamespaceTerminating", "it ends");
        assert_eq!(terminating, Eviction::Refused("the namespace is being deleted".into()));
    }
}
