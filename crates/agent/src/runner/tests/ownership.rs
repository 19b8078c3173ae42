//! The owner of the host: tasks for other workloads are refused until the host is clean.

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{session::TaskLine, task::TaskOutcome};
use serde_json::json;

use super::world::{HEAD, LEDGER, World, failure, laying_out, of_workload, residue, statement};

async fn succeeds(world: &World, task: &TaskStatement) {
    let end = world.end(task).await;
    assert!(matches!(end, TaskLine::Ended(TaskOutcome::Succeeded { .. })), "{end:?}");
}

#[tokio::test]
async fn task_of_another_workload_is_refused_while_one_owns_the_host() {
    let world = World::new().await;
    succeeds(&world, &laying_out(1, 1)).await;
    assert_eq!(world.refusal(&laying_out(2, 2)).await, Code::HostOwned);
    assert_eq!(world.refusal(&residue(2, 3, &[])).await, Code::HostOwned, "not even a look");
    succeeds(&world, &laying_out(1, 4)).await;
    succeeds(&world, &statement(5)).await;
}

#[tokio::test]
async fn same_workload_by_another_allocation_is_refused() {
    let world = World::new().await;
    succeeds(&world, &laying_out(1, 1)).await;
    let moved = TaskStatement { allocation: laying_out(2, 2).allocation, ..laying_out(1, 2) };
    assert_eq!(world.refusal(&moved).await, Code::HostOwned);
}

#[tokio::test]
async fn owner_survives_a_restart_and_a_rewritten_ledger() {
    let mut world = World::new().await;
    succeeds(&world, &laying_out(1, 1)).await;
    // Each start rewrites the ledger.
    for number in 2..4 {
        world.restart().await.unwrap();
        assert_eq!(world.refusal(&laying_out(2, number)).await, Code::HostOwned);
    }
    assert!(world.text(LEDGER).await.starts_with("{\"line\":\"fence\""), "the owner stands in its first line");
}

#[tokio::test]
async fn clean_residue_report_frees_the_host_and_one_with_findings_does_not() {
    let mut world = World::new().await;
    succeeds(&world, &laying_out(1, 1)).await;
    succeeds(&world, &residue(1, 2, &["/var/lib/rancher"])).await;
    assert_eq!(world.refusal(&laying_out(2, 3)).await, Code::HostOwned);
    succeeds(&world, &residue(1, 4, &[])).await;
    world.restart().await.unwrap();
    succeeds(&world, &laying_out(2, 5)).await;
    assert_eq!(world.refusal(&laying_out(1, 6)).await, Code::HostOwned, "the former owner is another one by now");
}

#[tokio::test]
async fn look_alone_takes_no_host() {
    let world = World::new().await;
    succeeds(&world, &residue(1, 1, &["/etc/rancher"])).await;
    succeeds(&world, &laying_out(2, 2)).await;
}

#[tokio::test]
async fn owner_of_an_earlier_enrollment_is_void() {
    let world = World::new().await;
    let owner = laying_out(1, 1);
    let (workload, allocation) = (owner.workload.unwrap(), owner.allocation.unwrap());
    let line =
        json!({ "line": "fence", "fence": 4, "owner": { "epoch": 2, "workload": workload, "allocation": allocation } });
    let file = gpuaas_host::FileSpec { path: LEDGER.into(), mode: 0o600, content: format!("{line}\n").into_bytes() };
    world.host.write(&file).await.unwrap();
    // The ledger of an agent that gave it no id.
    world.host.remove(HEAD.into()).await.unwrap();
    let mut world = world;
    world.expected.id = None;
    world.restart().await.unwrap();
    succeeds(&world, &laying_out(2, 2)).await;
}

#[tokio::test]
async fn workload_task_without_workload_or_allocation_is_refused() {
    let world = World::new().await;
    let whole = laying_out(1, 1);
    for cut in [
        TaskStatement { workload: None, ..whole.clone() },
        TaskStatement { allocation: None, ..whole.clone() },
        TaskStatement { workload: None, allocation: None, ..whole },
        TaskStatement { allocation: None, ..of_workload(1, 1, "host.noop", json!({})) },
    ] {
        assert_eq!(world.refusal(&cut).await, Code::EnvelopeForeign);
    }
}

#[tokio::test]
async fn task_that_failed_leaves_the_host_to_its_workload() {
    let world = World::new().await;
    let accepted = world.send(&super::world::changing(1)).await.ok().unwrap();
    let running = super::world::begun(accepted).await;
    world.runner.cancel(super::world::task(1));
    assert_eq!(failure(super::world::end(running).await), Code::TaskCancelled);
    assert_eq!(world.refusal(&laying_out(2, 2)).await, Code::HostOwned);
}
