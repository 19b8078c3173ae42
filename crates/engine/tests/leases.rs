//! Checks that a driver that lost its operation's lease records nothing, however late it notices. The simulation rarely shows a violation:
//! the new holder has usually recorded the same result already, and the attempt count of each step hides the other cases.

#[path = "../benches/scale/fleet.rs"]
#[allow(dead_code, reason = "shared with the bench")]
mod fleet;
#[path = "../benches/scale/ports.rs"]
mod ports;

use std::{sync::Arc, time::Duration};

use fleet::{Fleet, Nodes};
use gpuaas_model::{ReplicaId, StepState};
use gpuaas_store::OperationFilter;
use gpuaas_test_support::DatabaseFile;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn driver_without_its_lease_records_nothing() {
    let database = DatabaseFile::new();
    let nodes = Arc::new(Nodes::new(Duration::ZERO));
    let fleet = Fleet::start(&database.url(), nodes.clone(), 1, 1).await;
    nodes.hold(true);
    fleet.deploy(0, 1).await;
    nodes.until_dispatched(1).await;
    let operations = fleet.store().read().await.expect("a reader").operations(&OperationFilter::default()).await;
    let operation = operations.expect("operations").remove(0).id;
    let states = async || {
        let steps = fleet.store().read().await.expect("a reader").steps_of(operation).await.expect("steps");
        steps.into_iter().map(|step| (step.spec.key, step.state, step.attempts)).collect::<Vec<_>>()
    };
    let before = states().await;
    assert!(before.iter().any(|(_, state, _)| *state == StepState::Running), "{before:?}");

    let lease = format!("operation/{operation}");
    fleet.store().release_lease(&lease, fleet.replica()).await.expect("released");
    let other = ReplicaId::from_uuid(Uuid::new_v4());
    let taken = fleet.store().acquire_lease(&lease, other, Duration::from_secs(3_600)).await.expect("a lease");
    assert!(taken.is_some(), "the lease is free");
    // The node answers only now.
    nodes.hold(false);
    let driver_ended = async { ports::DRIVERS.subscribe().wait_for(|drivers| *drivers == 0).await.map(|_| ()) };
    tokio::time::timeout(Duration::from_secs(30), driver_ended)
        .await
        .expect("the driver gives up")
        .expect("a counter exists");
    assert_eq!(states().await, before, "only the new holder may record the result");
    fleet.stop().await;
}
