//! Envelopes that are refused, each without an effect.

use std::time::Duration;

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use serde_json::json;

use super::test_node::{
    LEDGER, TestNode, begun, cancellable, earlier, end, installing, late_ports, residue, statement, step, task,
};
use crate::{clock::now, runner::TASKS_MAX};

#[tokio::test]
async fn valid_task_runs() {
    let test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    assert_eq!(test_node.runs().await, 1);
    assert!(test_node.text(LEDGER).await.contains("succeeded"));
}

#[tokio::test]
async fn an_envelope_with_any_byte_changed_is_refused() {
    let test_node = TestNode::new().await;
    let envelope = test_node.signer.sign(&statement(1)).unwrap().to_json().into_bytes();
    for at in (0..envelope.len()).step_by(7) {
        let mut changed = envelope.clone();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert_eq!(test_node.refusal_of(&changed).await, Code::EnvelopeInvalid, "byte {at}");
    }
    assert_eq!(test_node.refusal_of(b"").await, Code::EnvelopeInvalid);
    assert_eq!(test_node.refusal_of(&envelope[..envelope.len() - 1]).await, Code::EnvelopeInvalid);
}

#[tokio::test]
async fn a_task_for_another_node_is_refused() {
    let test_node = TestNode::new().await;
    let node = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
    assert_eq!(test_node.refusal(&TaskStatement { node, ..statement(1) }).await, Code::EnvelopeRecipientMismatch);
}

#[tokio::test]
async fn a_task_of_another_control_plane_is_refused() {
    let test_node = TestNode::new().await;
    let control_plane = "cp-2".to_owned();
    assert_eq!(
        test_node.refusal(&TaskStatement { control_plane, ..statement(1) }).await,
        Code::EnvelopeRecipientMismatch
    );
}

#[tokio::test]
async fn a_task_for_an_older_or_newer_enrollment_is_refused() {
    let test_node = TestNode::new().await;
    for epoch in [2, 4] {
        assert_eq!(test_node.refusal(&TaskStatement { epoch, ..statement(1) }).await, Code::EnvelopeRecipientMismatch);
    }
}

#[tokio::test]
async fn expired_task_is_refused() {
    let test_node = TestNode::new().await;
    let (issued_at, expires_at) = (earlier(Duration::from_secs(60)), earlier(Duration::from_millis(1)));
    let late = TaskStatement { issued_at, expires_at, ..statement(1) };
    assert_eq!(test_node.refusal(&late).await, Code::EnvelopeExpired);
}

#[tokio::test]
async fn task_from_the_future_is_refused_beyond_the_clock_tolerance() {
    let test_node = TestNode::new().await;
    let issued = |ahead: u64, number| {
        let issued_at = now().plus(Duration::from_secs(ahead));
        TaskStatement { issued_at, expires_at: issued_at.plus(Duration::from_secs(60)), ..statement(number) }
    };
    assert_eq!(test_node.refusal(&issued(360, 1)).await, Code::EnvelopeExpired);
    test_node.end(&issued(240, 2)).await;
    assert_eq!(test_node.runs().await, 1);
}

#[tokio::test]
async fn task_with_a_lower_fence_is_refused() {
    let mut test_node = TestNode::new().await;
    test_node.end(&TaskStatement { fence: 7, ..statement(1) }).await;
    assert_eq!(test_node.refusal(&TaskStatement { fence: 6, ..statement(2) }).await, Code::FenceTooLow);
    test_node.restart().await.unwrap();
    assert_eq!(test_node.refusal(&TaskStatement { fence: 6, ..statement(2) }).await, Code::FenceTooLow);
    test_node.end(&TaskStatement { fence: 7, ..statement(3) }).await;
    assert_eq!((test_node.runs().await, test_node.runner.fence().await), (2, 7));
}

#[tokio::test]
async fn stale_attempt_of_a_step_is_refused() {
    let mut test_node = TestNode::new().await;
    let (step, other) = (Some(step(1)), Some(step(2)));
    test_node.end(&TaskStatement { step, attempt: 3, ..statement(1) }).await;
    let late = TaskStatement { step, attempt: 2, ..statement(2) };
    assert_eq!(test_node.refusal(&late).await, Code::StaleAttempt);
    test_node.restart().await.unwrap();
    assert_eq!(test_node.refusal(&late).await, Code::StaleAttempt);
    for accepted in [TaskStatement { step: other, ..late.clone() }, TaskStatement { attempt: 4, ..late }] {
        test_node.end(&TaskStatement { task: task(10 + accepted.attempt), ..accepted }).await;
    }
    assert_eq!(test_node.runs().await, 3);
}

#[tokio::test]
async fn a_refused_task_does_not_raise_the_fence() {
    let test_node = TestNode::new().await;
    let other_enrollment = TaskStatement { fence: 9, epoch: 2, ..statement(1) };
    let unknown = TaskStatement { fence: 9, task_type: "host.format".to_owned(), ..statement(2) };
    for refused in [other_enrollment, unknown] {
        test_node.refusal(&refused).await;
    }
    test_node.end(&statement(3)).await;
    assert_eq!(test_node.runner.fence().await, 4);
}

#[tokio::test]
async fn a_task_of_an_unknown_type_is_refused() {
    let test_node = TestNode::new().await;
    for (number, task_type) in (1..).zip(["host.format", "host.Noop", "", "rke2.start"]) {
        let unknown = TaskStatement { task_type: task_type.to_owned(), ..statement(number) };
        assert_eq!(test_node.refusal(&unknown).await, Code::TaskUnknown, "{task_type}");
    }
}

#[tokio::test]
async fn a_task_in_a_newer_or_older_schema_is_refused() {
    let test_node = TestNode::new().await;
    for schema in [0, 2] {
        assert_eq!(test_node.refusal(&TaskStatement { schema, ..statement(schema) }).await, Code::TaskUnknown);
    }
}

#[tokio::test]
async fn a_task_with_an_unknown_or_missing_parameter_is_refused() {
    let test_node = TestNode::new().await;
    for (number, task_type, params) in [
        (1, "host.noop", json!({ "force": true })),
        (2, "host.noop", json!(null)),
        (3, "rke2.stop", json!({})),
        (4, "rke2.stop", json!({ "role": "server", "also": "x" })),
    ] {
        let odd = TaskStatement { task_type: task_type.to_owned(), params, ..statement(number) };
        assert_eq!(test_node.refusal(&odd).await, Code::TaskParamsInvalid, "{}", odd.params);
    }
}

#[tokio::test]
async fn refused_task_stays_refused_after_the_obstacle_is_gone() {
    let test_node = TestNode::new().await;
    // Another workload owned the host.
    test_node.end(&installing(1, 1)).await;
    assert_eq!(test_node.refusal(&installing(2, 2)).await, Code::HostInUse);
    test_node.end(&residue(1, 3, &[])).await;
    assert_eq!(test_node.refusal(&installing(2, 2)).await, Code::HostInUse);
    test_node.end(&installing(2, 4)).await;
    // Too many tasks ran.
    let mut running = Vec::new();
    for number in (100..).take(TASKS_MAX) {
        running.push(begun(test_node.send(&cancellable(number)).await.ok().unwrap()).await);
    }
    assert_eq!(test_node.refusal(&statement(5)).await, Code::NodeBusy);
    test_node.runner.cancel(task(100));
    end(running.remove(0)).await;
    assert_eq!(test_node.refusal(&statement(5)).await, Code::NodeBusy);
    test_node.end(&statement(6)).await;
    assert_eq!(test_node.runs().await, 2 + TASKS_MAX + 1);
}

#[tokio::test]
async fn task_refused_for_an_unwritable_ledger_never_runs() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    // The ledger cannot be written.
    test_node.host.files().remove(LEDGER.into()).await.unwrap();
    assert_eq!(test_node.refusal(&statement(2)).await, Code::HostFailed);
    assert_eq!(
        test_node.refusal(&statement(2)).await,
        Code::HostFailed,
        "the refusal stands after the ledger is writable again"
    );
    test_node.end(&statement(3)).await;
    // The refusal was written together with the next task.
    for _ in 0..2 {
        test_node.restart().await.unwrap();
        assert_eq!(test_node.refusal(&statement(2)).await, Code::HostFailed);
    }
    assert_eq!(test_node.runs().await, 2);
}

#[tokio::test]
async fn refusals_are_dropped_when_their_tasks_expire_or_beyond_a_limit() {
    let mut test_node = TestNode::new().await;
    let unknown = |number: u32| TaskStatement { task_type: "host.format".to_owned(), ..statement(number) };
    let later = |number: u32| TaskStatement { expires_at: now().plus(Duration::from_secs(600)), ..unknown(number) };
    test_node.refusal(&unknown(0)).await;
    for number in 1..=1_024 {
        assert!(test_node.send(&later(number)).await.is_err());
    }
    let refused = async |test_node: &TestNode| {
        let ledger = test_node.runner.ledger.as_ref().unwrap().lock().await;
        [0, 1, 1_024].map(|number| ledger.refusal(task(number)).is_some())
    };
    assert_eq!(refused(&test_node).await, [false, true, true], "the refusal that expires first is dropped");
    // After a failed write, the next write rewrites the file.
    test_node.host.files().remove(LEDGER.into()).await.unwrap();
    test_node.refusal(&statement(2_000)).await;
    test_node.end(&statement(2_001)).await;
    test_node.restart().await.unwrap();
    assert_eq!(
        refused(&test_node).await,
        [false, false, true],
        "the refusal of task 2000 displaced that of task 1, which expires before the others"
    );
    test_node.restart_with(late_ports()).await.unwrap();
    assert_eq!(refused(&test_node).await, [false; 3]);
    assert!(!test_node.text(LEDGER).await.contains("refuse"));
}
