//! Calls to the cluster of a workload.

use gpuaas_model::{Code, StepState};
use gpuaas_planner::{StepOutput, StepSpec};
use serde_json::json;

use crate::{
    kit::{AGAIN, UNKNOWN, call, needs, task, times},
    nodes::hold,
    site::Site,
};

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_of_a_call_renders_its_parameters_again() {
    let site = Site::of(1).await;
    let (end, reaction) = hold("working");
    site.engines.nodes.react([reaction]);
    site.engines.kit.set_outputs("learn", [Ok(vec![StepOutput::Fact("version".to_owned(), json!("2"))])]);
    let (_, operation) = site
        .deploy(|of| {
            // Fails at once, and waits half a minute before its second and last attempt.
            let retry = gpuaas_planner::Retry { base_ms: 60_000, cap_ms: 60_000, ..times(2) };
            vec![task("learn", of, 0), StepSpec { retry, ..call("ask", AGAIN) }]
        })
        .await;
    site.until(operation, "ask", |step| step.state == StepState::Backoff).await;
    end.send(crate::nodes::done(json!({}))).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!(ended.steps["ask"].attempts, 2);
    let calls = site.engines.kit.calls.lock().unwrap();
    assert_eq!(calls.iter().map(|call| call.call.as_str()).collect::<Vec<_>>(), [AGAIN, AGAIN]);
    let parameters: Vec<_> = calls.iter().map(|call| &call.parameters).collect();
    assert_eq!(parameters, [&json!({ "facts": {} }), &json!({ "facts": { "version": "2" } })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_the_app_does_not_have_fails_its_step_and_is_not_made() {
    let site = Site::of(1).await;
    let ended = site.deploy_and_wait(|_| vec![call("ask", UNKNOWN), needs(call("more", "answers"), &["ask"])]).await;
    let fault = ended.steps["ask"].fault.as_ref().unwrap();
    assert_eq!(fault.code, Code::TaskUnknown.to_string());
    assert!(fault.summary.contains(UNKNOWN), "{}", fault.summary);
    assert_eq!(ended.steps["more"].state, StepState::Skipped);
    assert!(site.engines.kit.calls.lock().unwrap().is_empty());
}
