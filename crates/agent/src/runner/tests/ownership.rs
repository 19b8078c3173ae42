//! The owner of the host: tasks for other workloads are refused until the host is clean.

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{session::TaskLine, task::TaskOutcome};
use serde_json::json;

use super::world::{HEAD, LEDGER, World, failure, installing, of_workload, residue, statement};

async fn assert_succeeds(world: &World, task: &TaskStatement) {
    let end = world.end(task).await;
    assert!(matches!(end, TaskLine::Ended(TaskOutcome::Succeeded { .. })), "{end:?}");
}

#[tokio::test]
async fn task_of_another_workload_is_refused_while_one_owns_the_host() {
    let world = World::new().await;
    assert_succeeds(&world, &installing(1, 1)).await;
    assert_eq!(world.refusal(&installing(2, 2)).await, Code::HostInUse);
    assert_eq!(world.refusal(&residue(2, 3, &[])).await, Code::HostInUse, "a residue check is refused too");
    assert_succeeds(&world, &installing(1, 4)).await;
    assert_succeeds(&world, &statement(5)).await;
}

#[tokio::test]
async fn same_workload_by_another_allocation_is_refused() {
    let world = World::new().await;
    assert_succeeds(&world, &installing(1, 1)).await;
    let moved = TaskStatement { allocation: installing(2, 2).allocation, ..installing(1, 2) };
    assert_eq!(world.refusal(&moved).await, Code::HostInUse);
}

#[tokio::test]
async fn owner_survives_a_restart_and_a_rewritten_ledger() {
    let mut world = World::new().await;
    assert_succeeds(&world, &installing(1, 1)).await;
    // Each start rewrites the ledger.
    for number in 2..4 {
        world.restart().await.unwrap();
        assert_eq!(world.refusal(&installing(2, number)).await, Code::HostInUse);
    }
    assert!(world.text(LEDGER).await.starts_with("{\"line\":\"fence\""), "the first line has the owner");
}

#[tokio::test]
async fn clean_residue_report_frees_the_host_and_one_with_findings_does_not() {
    let mut world = World::new().await;
    assert_succeeds(&world, &installing(1, 1)).await;
    assert_succeeds(&world, &residue(1, 2, &["/var/lib/rancher"])).await;
    assert_eq!(world.refusal(&installing(2, 3)).await, Code::HostInUse);
    assert_succeeds(&world, &residue(1, 4, &[])).await;
    world.restart().await.unwrap();
    assert_succeeds(&world, &installing(2, 5)).await;
    assert_eq!(world.refusal(&installing(1, 6)).await, Code::HostInUse, "the former owner no longer owns the host");
}

#[tokio::test]
async fn residue_check_claims_no_host() {
    let world = World::new().await;
    assert_succeeds(&world, &residue(1, 1, &["/etc/rancher"])).await;
    assert_succeeds(&world, &installing(2, 2)).await;
}

#[tokio::test]
async fn owner_of_an_earlier_enrollment_is_ignored() {
    let world = World::new().await;
    let owner = installing(1, 1);
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
    assert_succeeds(&world, &installing(2, 2)).await;
}

#[tokio::test]
async fn workload_task_without_workload_or_allocation_is_refused() {
    let world = World::new().await;
    let whole = installing(1, 1);
    for cut in [
        TaskStatement { workload: None, ..whole.clone() },
        TaskStatement { allocation: None, ..whole.clone() },
        TaskStatement { workload: None, allocation: None, ..whole },
        TaskStatement { allocation: None, ..of_workload(1, 1, "host.noop", json!({})) },
    ] {
        assert_eq!(world.refusal(&cut).await, Code::EnvelopeRecipientMismatch);
    }
}

#[tokio::test]
async fn failed_task_keeps_the_host_with_its_workload() {
    let world = World::new().await;
    let accepted = world.send(&super::world::changing(1)).await.ok().unwrap();
    let running = super::world::begun(accepted).await;
    world.runner.cancel(super::world::task(1));
    assert_eq!(failure(super::world::end(running).await), Code::TaskCancelled);
    assert_eq!(world.refusal(&installing(2, 2)).await, Code::HostInUse);
}
