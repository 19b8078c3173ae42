//! Envelopes that are refused, each without a trace.

use std::time::Duration;

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use serde_json::json;

use super::world::{World, earlier, statement, step, task};
use crate::clock::now;

#[tokio::test]
async fn a_task_that_is_in_order_runs() {
    let world = World::new().await;
    world.end(&statement(1)).await;
    assert_eq!(world.runs().await, 1);
    assert!(world.text(super::world::LEDGER).await.contains("succeeded"));
}

#[tokio::test]
async fn an_envelope_with_any_byte_changed_is_refused() {
    let world = World::new().await;
    let envelope = world.signer.sign(&statement(1)).unwrap().to_json().into_bytes();
    for at in (0..envelope.len()).step_by(7) {
        let mut changed = envelope.clone();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert_eq!(world.refusal_of(&changed).await, Code::EnvelopeInvalid, "byte {at}");
    }
    assert_eq!(world.refusal_of(b"").await, Code::EnvelopeInvalid);
    assert_eq!(world.refusal_of(&envelope[..envelope.len() - 1]).await, Code::EnvelopeInvalid);
}

#[tokio::test]
async fn a_task_for_another_node_is_refused() {
    let world = World::new().await;
    let node = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
    assert_eq!(world.refusal(&TaskStatement { node, ..statement(1) }).await, Code::EnvelopeForeign);
}

#[tokio::test]
async fn a_task_of_another_control_plane_is_refused() {
    let world = World::new().await;
    let control_plane = "cp-2".to_owned();
    assert_eq!(world.refusal(&TaskStatement { control_plane, ..statement(1) }).await, Code::EnvelopeForeign);
}

#[tokio::test]
async fn a_task_for_an_older_or_newer_enrollment_is_refused() {
    let world = World::new().await;
    for epoch in [2, 4] {
        assert_eq!(world.refusal(&TaskStatement { epoch, ..statement(1) }).await, Code::EnvelopeForeign);
    }
}

#[tokio::test]
async fn a_task_whose_time_is_over_is_refused() {
    let world = World::new().await;
    let (issued_at, expires_at) = (earlier(Duration::from_secs(60)), earlier(Duration::from_millis(1)));
    let late = TaskStatement { issued_at, expires_at, ..statement(1) };
    assert_eq!(world.refusal(&late).await, Code::EnvelopeExpired);
}

#[tokio::test]
async fn a_task_from_the_future_is_refused_but_for_clocks_that_differ_a_little() {
    let world = World::new().await;
    let issued = |ahead: u64, number| {
        let issued_at = now().plus(Duration::from_secs(ahead));
        TaskStatement { issued_at, expires_at: issued_at.plus(Duration::from_secs(60)), ..statement(number) }
    };
    assert_eq!(world.refusal(&issued(360, 1)).await, Code::EnvelopeExpired);
    world.end(&issued(240, 1)).await;
    assert_eq!(world.runs().await, 1);
}

#[tokio::test]
async fn a_task_with_a_lower_fence_than_was_seen_is_refused() {
    let mut world = World::new().await;
    world.end(&TaskStatement { fence: 7, ..statement(1) }).await;
    assert_eq!(world.refusal(&TaskStatement { fence: 6, ..statement(2) }).await, Code::FenceTooLow);
    world.restart().await.unwrap();
    assert_eq!(world.refusal(&TaskStatement { fence: 6, ..statement(2) }).await, Code::FenceTooLow);
    world.end(&TaskStatement { fence: 7, ..statement(2) }).await;
    assert_eq!((world.runs().await, world.runner.fence().await), (2, 7));
}

#[tokio::test]
async fn an_older_attempt_of_a_step_than_was_seen_is_refused() {
    let mut world = World::new().await;
    let (step, other) = (Some(step(1)), Some(step(2)));
    world.end(&TaskStatement { step, attempt: 3, ..statement(1) }).await;
    let late = TaskStatement { step, attempt: 2, ..statement(2) };
    assert_eq!(world.refusal(&late).await, Code::AttemptTooLow);
    world.restart().await.unwrap();
    assert_eq!(world.refusal(&late).await, Code::AttemptTooLow);
    for accepted in [TaskStatement { step: other, ..late.clone() }, TaskStatement { attempt: 4, ..late }] {
        world.end(&TaskStatement { task: task(accepted.attempt), ..accepted }).await;
    }
    assert_eq!(world.runs().await, 3);
}

#[tokio::test]
async fn a_refused_task_does_not_raise_the_fence() {
    let world = World::new().await;
    let foreign = TaskStatement { fence: 9, epoch: 2, ..statement(1) };
    let unknown = TaskStatement { fence: 9, task_type: "host.format".to_owned(), ..statement(1) };
    for refused in [foreign, unknown] {
        world.refusal(&refused).await;
    }
    world.end(&statement(1)).await;
    assert_eq!(world.runner.fence().await, 4);
}

#[tokio::test]
async fn a_task_of_an_unknown_type_is_refused() {
    let world = World::new().await;
    for task_type in ["host.format", "host.Noop", "", "rke2.start"] {
        let unknown = TaskStatement { task_type: task_type.to_owned(), ..statement(1) };
        assert_eq!(world.refusal(&unknown).await, Code::TaskUnknown, "{task_type}");
    }
}

#[tokio::test]
async fn a_task_in_a_newer_or_older_schema_is_refused() {
    let world = World::new().await;
    for schema in [0, 2] {
        assert_eq!(world.refusal(&TaskStatement { schema, ..statement(1) }).await, Code::TaskUnknown);
    }
}

#[tokio::test]
async fn a_task_with_an_unknown_or_missing_parameter_is_refused() {
    let world = World::new().await;
    for (task_type, params) in [
        ("host.noop", json!({ "force": true })),
        ("host.noop", json!(null)),
        ("rke2.stop", json!({})),
        ("rke2.stop", json!({ "role": "server", "also": "x" })),
    ] {
        let odd = TaskStatement { task_type: task_type.to_owned(), params, ..statement(1) };
        assert_eq!(world.refusal(&odd).await, Code::TaskParamsInvalid, "{}", odd.params);
    }
}
