//! Compare-and-swap: a write based on an outdated read does not overwrite a newer change.

use gpuaas_model::{Health, MemberState, MemberStateName, NodeState, OperationState, StepState, TaskState};
use gpuaas_store::*;

use super::{
    database::{Database, NOW, run_concurrently},
    given,
};

fn assert_stale<T: std::fmt::Debug>(outcome: Result<T, StoreError>, kind: &str) {
    match outcome {
        Err(StoreError::Stale { what }) => assert_eq!(what, kind),
        other => panic!("expected a stale {kind}: {other:?}"),
    }
}

pub(crate) async fn a_node_read_before_another_change_is_stale(database: Database) {
    let store = database.open().await;
    let (_, read, _) = given::allocated_node(&store, "gpu-1").await;
    let mut tx = store.begin().await.unwrap();
    let next = tx.update_node(&NodeRecord { state: NodeState::Retired, ..read.clone() }).await.unwrap();
    assert_eq!(next.generation, read.generation + 1);
    assert_stale(tx.update_node(&read).await, "node");
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().node(read.id).await.unwrap(), next);
}

pub(crate) async fn an_allocation_read_before_another_change_is_stale(database: Database) {
    let store = database.open().await;
    let (_, _, read) = given::allocated_node(&store, "gpu-1").await;
    let mut tx = store.begin().await.unwrap();
    let next = tx.update_allocation(&read).await.unwrap();
    assert_stale(tx.update_allocation(&read).await, "allocation");
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().allocation(read.id).await.unwrap(), next);
}

pub(crate) async fn a_workload_read_before_another_change_is_stale(database: Database) {
    let store = database.open().await;
    let (_, read) = given::workload_in_project(&store, "train").await;
    database.advance_clock(5);
    let mut tx = store.begin().await.unwrap();
    let next = tx.update_workload(&WorkloadRecord { health: Health::Healthy, ..read.clone() }).await.unwrap();
    assert_eq!(next.updated_at.since(NOW).as_millis(), 5);
    assert_stale(tx.update_workload(&read).await, "workload");
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().workload(read.id).await.unwrap(), next);
}

pub(crate) async fn a_member_is_written_only_from_the_state_it_was_in(database: Database) {
    let store = database.open().await;
    let (project, _, allocation) = given::allocated_node(&store, "gpu-1").await;
    let train = given::workload(&project, "train");
    let member = given::member(&train, &allocation);
    let ready = MemberRecord { state: MemberState::Ready { since: NOW }, ..member.clone() };
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&train).await.unwrap();
    tx.insert_members(std::slice::from_ref(&member)).await.unwrap();
    assert_stale(tx.update_member(&ready, MemberStateName::Joining).await, "member");
    tx.update_member(&ready, MemberStateName::Pending).await.unwrap();
    assert_stale(tx.update_member(&ready, MemberStateName::Pending).await, "member");
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().member(member.id).await.unwrap().state, ready.state);
}

pub(crate) async fn operations_steps_and_tasks_are_written_only_from_the_state_they_were_in(database: Database) {
    let store = database.open().await;
    let (_, node, _) = given::allocated_node(&store, "gpu-1").await;
    let (_, train) = given::workload_in_project(&store, "train").await;
    let operation = given::operation(&train);
    let (step, task) = (given::step(&operation, 0), given::task(&node));
    let mut tx = store.begin().await.unwrap();
    tx.insert_operation(&operation, std::slice::from_ref(&step)).await.unwrap();
    tx.insert_task(&task).await.unwrap();
    let running = OperationRecord { state: OperationState::Running, ..operation.clone() };
    tx.update_operation(&running, OperationState::Queued).await.unwrap();
    assert_stale(tx.update_operation(&running, OperationState::Queued).await, "operation");
    let begun = StepRecord { state: StepState::Running, attempts: 1, ..step.clone() };
    tx.update_step(&begun, (StepState::Pending, 0)).await.unwrap();
    assert_stale(tx.update_step(&begun, (StepState::Running, 0)).await, "step");
    assert_stale(tx.update_step(&begun, (StepState::Pending, 1)).await, "step");
    let done = TaskRecord { state: TaskState::Succeeded, ..task.clone() };
    tx.update_task(&done, TaskState::Dispatched).await.unwrap();
    assert_stale(tx.update_task(&done, TaskState::Dispatched).await, "task");
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.operation(operation.id).await.unwrap(), running);
    assert_eq!(reader.step(step.id).await.unwrap(), begun);
    assert_eq!(reader.task(task.id).await.unwrap(), done);
}

pub(crate) async fn concurrent_node_updates_take_each_generation_once(database: Database) {
    let stores = [database.open().await, database.open().await];
    let (_, node, _) = given::allocated_node(&stores[0], "gpu-1").await;
    let written = run_concurrently(8, |index| {
        let (store, id) = (stores[index % 2].clone(), node.id);
        async move {
            let mut written = 0_u64;
            for _ in 0..5 {
                let read = store.read().await.unwrap().node(id).await.unwrap();
                let mut tx = store.begin().await.unwrap();
                match tx.update_node(&read).await {
                    Ok(_) => {
                        tx.commit().await.unwrap();
                        written += 1;
                    }
                    Err(StoreError::Stale { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            written
        }
    })
    .await;
    let last = stores[0].read().await.unwrap().node(node.id).await.unwrap().generation;
    assert_eq!(last, node.generation + written.iter().sum::<u64>(), "no update was lost");
}

pub(crate) async fn revisions_of_a_reconciliation_are_quiet_until_something_else_changes(database: Database) {
    let store = database.open().await;
    let (_, read) = given::workload_in_project(&store, "train").await;
    let mut tx = store.begin().await.unwrap();
    let mut present = read.clone();
    for phase in ["reconciling", "ready"] {
        let mut next = WorkloadRecord { phase: phase.to_owned(), ..present.clone() };
        next.quiet = next.quiet_after(&present);
        present = tx.update_workload(&next).await.unwrap();
        assert!(present.matches_revision(read.revision) && present.matches_revision(present.revision), "{phase}");
    }
    assert!(!present.matches_revision(read.revision - 1) && !present.matches_revision(present.revision + 1));
    let generation = WorkloadRecord { generation: 2, ..present.clone() };
    assert_eq!(generation.quiet_after(&present), None, "a person changed it");
    // A writer that knows nothing of quiet revisions keeps them in the row, and they no longer count.
    let changed = tx.update_workload(&generation).await.unwrap();
    assert!(
        changed.quiet.is_some()
            && !changed.matches_revision(read.revision)
            && changed.matches_revision(changed.revision)
    );
}
