//! Running tasks: how they end, and how they affect each other. The clock is paused and advances only when nothing else can run.

use std::time::Duration;

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{session::TaskLine, task::TaskOutcome};

use super::test_node::{
    TestNode, begun, cancellable, changing, end, failure, panicking, statement, task, unresponsive,
};
use crate::clock::now;

fn soon(statement: TaskStatement) -> TaskStatement {
    TaskStatement { expires_at: now().plus(Duration::from_secs(20)), ..statement }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_watches_its_deadline_ends_with_its_evidence() {
    let test_node = TestNode::new().await;
    let line = test_node.end(&soon(cancellable(1))).await;
    assert!(matches!(&line, TaskLine::Ended(TaskOutcome::Failed { failure }) if failure.message.contains("evidence")));
    assert_eq!(failure(line), Code::TaskTimedOut);
}

#[tokio::test(start_paused = true)]
async fn handler_that_ignores_its_deadline_is_ended_at_it() {
    let test_node = TestNode::new().await;
    let line = test_node.end(&soon(unresponsive(1))).await;
    assert_eq!(failure(line.clone()), Code::TaskTimedOut);
    assert_eq!(test_node.end(&unresponsive(1)).await, line, "its end is recorded");
    assert_eq!(test_node.runs().await, 1);
}

#[tokio::test]
async fn a_cancelled_handler_ends_with_its_evidence() {
    let test_node = TestNode::new().await;
    let lines = begun(test_node.send(&cancellable(1)).await.ok().unwrap()).await;
    test_node.runner.cancel(task(1));
    let line = end(lines).await;
    assert!(matches!(&line, TaskLine::Ended(TaskOutcome::Failed { failure }) if failure.message.contains("evidence")));
    assert_eq!(failure(line), Code::TaskCancelled);
}

#[tokio::test(start_paused = true)]
async fn cancelled_handler_that_ignores_cancellation_is_ended() {
    let test_node = TestNode::new().await;
    let lines = begun(test_node.send(&unresponsive(1)).await.ok().unwrap()).await;
    test_node.runner.cancel(task(7));
    test_node.runner.cancel(task(1));
    assert_eq!(failure(end(lines).await), Code::TaskCancelled);
}

#[tokio::test]
async fn next_task_starts_after_a_cancellation() {
    let test_node = TestNode::new().await;
    let first = begun(test_node.send(&changing(1)).await.ok().unwrap()).await;
    let second = test_node.send(&changing(2)).await.ok().unwrap();
    // A task that changes nothing does not wait for them.
    test_node.end(&statement(3)).await;
    assert_eq!(test_node.runs().await, 2, "the second waits for the first");
    test_node.runner.cancel(task(1));
    assert_eq!(failure(end(first).await), Code::TaskCancelled);
    let second = begun(second).await;
    assert_eq!(test_node.runs().await, 3);
    test_node.runner.cancel(task(2));
    end(second).await;
}

#[tokio::test]
async fn two_tasks_that_change_nothing_run_side_by_side() {
    let test_node = TestNode::new().await;
    let one = begun(test_node.send(&cancellable(1)).await.ok().unwrap()).await;
    let other = begun(test_node.send(&cancellable(2)).await.ok().unwrap()).await;
    assert_eq!(test_node.runs().await, 2);
    test_node.runner.cancel(task(2));
    assert_eq!(failure(end(other).await), Code::TaskCancelled);
    // A second subscriber receives the same end, and the first task was not affected.
    let again = test_node.send(&cancellable(1)).await.ok().unwrap();
    test_node.runner.cancel(task(1));
    let ends = (end(one).await, end(again).await);
    assert_eq!(ends.0, ends.1);
    assert_eq!(test_node.runs().await, 2);
}

#[tokio::test]
async fn more_tasks_than_the_limit_are_refused() {
    let test_node = TestNode::new().await;
    let mut running = Vec::new();
    for number in 0..32 {
        running.push(begun(test_node.send(&cancellable(number)).await.ok().unwrap()).await);
    }
    assert_eq!(test_node.refusal(&statement(99)).await, Code::NodeBusy);
    test_node.runner.cancel(task(0));
    end(running.remove(0)).await;
    test_node.end(&statement(98)).await;
}

#[tokio::test]
async fn panicking_handler_fails_and_the_next_task_runs() {
    let test_node = TestNode::new().await;
    let line = test_node.end(&panicking(1)).await;
    assert_eq!(failure(line.clone()), Code::Internal);
    assert_eq!(test_node.end(&panicking(1)).await, line);
    test_node.end(&statement(2)).await;
}
