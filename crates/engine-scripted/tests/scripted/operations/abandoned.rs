//! Tasks whose result no process waits for any more.

use std::time::Duration;

use gpuaas_engine::commands::ping;
use gpuaas_model::{AuditAction, TaskId, TaskState, Timestamp};
use gpuaas_store::TaskRecord;
use uuid::Uuid;

use crate::{
    engines::{admin, eventually},
    kit::task,
    nodes::{done, hold},
    site::Site,
};

#[tokio::test(flavor = "multi_thread")]
async fn sweep_ends_only_abandoned_tasks() {
    let site = Site::of(1).await;
    let (pinged, _) = ping::ping(&site.engines.engine, &admin(), site.nodes[0]).await.unwrap();
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(|of| vec![task("install", of, 0)]).await;
    site.until(operation, "install", |step| step.detail.is_some()).await;
    // Open tasks, as a process leaves them if it dies before it records their ends.
    let now = site.engines.engine.ports().clock.now();
    let (past, later) = (Timestamp::from_millis(now.as_millis() - 60_000), now.plus(Duration::from_secs(3_600)));
    let open = |number, operation, expires_at| TaskRecord {
        id: TaskId::from_uuid(Uuid::from_u128(number)),
        operation,
        state: TaskState::Dispatched,
        outcome: None,
        ended_at: None,
        expires_at,
        ..pinged.clone()
    };
    let left = [open(1, None, past), open(2, None, later), open(3, Some(operation), past)];
    let mut tx = site.engines.store().begin().await.unwrap();
    for task in &left {
        tx.insert_task(task).await.unwrap();
    }
    tx.commit().await.unwrap();
    let states = async || {
        let mut reader = site.engines.store().read().await.unwrap();
        let mut states = Vec::new();
        for task in &left {
            states.push(reader.task(task.id).await.unwrap().state);
        }
        states
    };
    eventually("it stays open", async || states().await[0].is_final()).await;
    assert_eq!(states().await, [TaskState::Expired, TaskState::Dispatched, TaskState::Dispatched]);
    end.send(done(serde_json::json!({}))).unwrap();
    assert_eq!(site.end_of(operation).await.tasks["install"].state, TaskState::Succeeded);
    // The ping, the operation's own task and the abandoned task.
    assert_eq!(site.engines.recorded(AuditAction::TaskComplete).await, 3);
}
