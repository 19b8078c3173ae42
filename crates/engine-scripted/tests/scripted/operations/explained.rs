//! Waits in rows and events: what is awaited, from whom, and what was last seen.

use gpuaas_model::{Code, EventKind, OperationState, StepState};
use gpuaas_planner::{FailureScope, Retry, StepSpec, WorkloadView};
use gpuaas_store::EventRecord;
use serde_json::{Value, json};

use crate::{
    kit::{AGAIN, milestone, needs, task},
    nodes::{done, failed, hold},
    site::{Site, assert_explained},
};

fn planned(of: &WorkloadView) -> Vec<StepSpec> {
    let scope = || FailureScope::Operation;
    let fetch =
        StepSpec { scope: scope(), retry: Retry { attempts_max: 2, base_ms: 50, cap_ms: 50 }, ..task("fetch", of, 0) };
    let install = StepSpec { scope: scope(), ..needs(task("install", of, 0), &["fetch"]) };
    vec![fetch, install, needs(milestone("after"), &["install"])]
}

/// Returns the explanations in the events of a kind, in order.
fn explanations(events: &[EventRecord], kind: EventKind) -> Vec<Value> {
    events.iter().filter(|event| event.kind == kind).map(|event| event.data["waiting"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn open_operation_is_explained_in_rows_and_events_until_it_ends() {
    let site = Site::of(1).await;
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.end_tasks([failed(Code::Unavailable, AGAIN), done(json!({ "changed": true }))]);
    site.engines.nodes.react([reaction]);
    let (workload, operation) = site.deploy(planned).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    {
        let mut reader = site.engines.store().read().await.unwrap();
        let (row, members) = (reader.workload(workload).await.unwrap(), reader.members_of(workload).await.unwrap());
        let (running, steps) = (reader.operation(operation).await.unwrap(), reader.steps_of(operation).await.unwrap());
        assert_explained(&row, &members, &running, &steps);
        assert_eq!(running.state, OperationState::Running);
        let pending = steps.iter().find(|step| step.state == StepState::Pending).unwrap();
        assert_eq!(pending.spec.key.as_str(), "after");
    }
    end.send(done(json!({ "changed": true }))).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!(ended.operation.state, OperationState::Succeeded, "{:?}", ended.operation.fault);

    let steps = explanations(&ended.events, EventKind::StepChanged);
    let running = steps.iter().find(|of| of["evidence"] == "unpacking").expect("the progress of the step");
    assert_eq!((&running["from"], &running["what"]), (&json!("node"), &json!("its node to answer a ping")));
    assert_eq!(running["command"], format!("gpuaas operation watch {operation}"));
    assert!(running["since"].is_string() && running["until"].is_string(), "{running}");
    let again = steps.iter().find(|of| of["what"] == "attempt 2 of fetch").expect("the retry");
    assert!(again["from"] == "platform" && again["evidence"].is_string() && again["until"].is_string(), "{again}");
    assert!(!explanations(&ended.events, EventKind::OperationStarted)[0].is_null());
    assert!(explanations(&ended.events, EventKind::OperationEnded)[0].is_null(), "it succeeded");
    assert!(!explanations(&ended.events, EventKind::WorkloadRequested)[0].is_null());
    let tasks = explanations(&ended.events, EventKind::TaskChanged);
    assert!(tasks.iter().any(Value::is_object) && tasks.iter().any(Value::is_null), "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_that_needs_attention_says_whose_decision_it_awaits() {
    let site = Site::of(1).await;
    site.engines.nodes.end_tasks([failed(Code::ArtifactDigestMismatch, "another file")]);
    let ended = site.deploy_and_wait(planned).await;
    assert_eq!(ended.operation.state, OperationState::NeedsAttention);
    let explained = explanations(&ended.events, EventKind::OperationEnded);
    assert_eq!(explained[0]["from"], "tenant", "{explained:?}");
    assert!(explained[0]["evidence"].as_str().is_some_and(|seen| !seen.is_empty()), "{explained:?}");
}
