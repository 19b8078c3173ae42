use futures::FutureExt;
use uuid::Uuid;

use super::*;

const LIMITS: QueueLimits =
    QueueLimits { permits: 8, per_project: 4, per_workload: 1, waiting: 20, waiting_per_workload: 2 };

fn project(number: u128) -> ProjectId {
    ProjectId::from_uuid(Uuid::from_u128(number))
}

fn workload(number: u128) -> WorkloadId {
    WorkloadId::from_uuid(Uuid::from_u128(number))
}

fn permit(queue: &Arc<FairQueue>, of: (u128, u128)) -> Option<CallPermit> {
    queue.enter(project(of.0), workload(of.1)).ok()?.now_or_never()?.ok()
}

#[test]
fn permits_are_limited_per_workload_and_project() {
    let queue = FairQueue::new(LIMITS);
    let mut held: Vec<_> = (1..=9).filter_map(|number| permit(&queue, (1, number))).collect();
    assert_eq!(held.len(), LIMITS.per_project);
    assert!(permit(&queue, (2, 100)).is_some(), "another project has its own permits");
    let second = queue.enter(project(1), workload(1)).unwrap();
    held.remove(0);
    assert!(second.now_or_never().is_some(), "the second call gets the permit of the first");
    drop(held);
    let state = queue.state.lock().unwrap();
    assert!(state.by_project.is_empty() && state.by_workload.is_empty() && state.held == 0);
}

#[test]
fn free_permit_goes_to_oldest_waiter_of_project_with_fewest_permits() {
    let queue = FairQueue::new(LIMITS);
    let enter = |of: (u128, u128)| Box::pin(queue.enter(project(of.0), workload(of.1)).unwrap());
    let mut held: Vec<_> = (1..=4).filter_map(|number| permit(&queue, (1, number))).collect();
    held.extend((11..=14).filter_map(|number| permit(&queue, (2, number))));
    assert_eq!(held.len(), LIMITS.permits);
    let (mut greedy, mut older, mut newer) = (enter((1, 5)), enter((3, 21)), enter((3, 22)));
    for waits in [&mut greedy, &mut older, &mut newer] {
        assert!(waits.now_or_never().is_none());
    }
    held.remove(0);
    let first = (&mut older).now_or_never();
    assert!(first.is_some() && (&mut newer).now_or_never().is_none() && (&mut greedy).now_or_never().is_none());
    held.remove(0);
    let second = (&mut newer).now_or_never();
    assert!(second.is_some() && (&mut greedy).now_or_never().is_none());
}

#[test]
fn waiters_per_workload_are_limited() {
    let queue = FairQueue::new(LIMITS);
    let _held = permit(&queue, (1, 1)).unwrap();
    let mut waits: Vec<_> = (0..2).map(|_| queue.enter(project(1), workload(1)).unwrap()).collect();
    assert_eq!(queue.enter(project(1), workload(1)).err(), Some(QueueFull));
    waits.pop();
    assert!(queue.enter(project(1), workload(1)).is_ok());
}

#[test]
fn full_queue_refuses_newest_waiter_of_largest_project() {
    let queue = FairQueue::new(LIMITS);
    let _held: Vec<_> = (1..=4).filter_map(|number| permit(&queue, (1, number))).collect();
    let wait = |of: (u128, u128)| queue.enter(project(of.0), workload(of.1));
    let mut crowd: Vec<_> = (0..20).map(|number| wait((1, 10 + number)).unwrap()).collect();
    assert_eq!(wait((1, 50)).err(), Some(QueueFull), "its own project has the most waiters");
    let other = permit(&queue, (2, 60));
    assert!(other.is_some(), "another project gets a permit at once");
    let newest = crowd.pop().unwrap().now_or_never();
    assert!(matches!(newest, Some(Err(QueueFull))), "the newest waiter of the largest project is evicted");
    assert!(crowd.iter_mut().all(|waits| waits.now_or_never().is_none()));
}

#[test]
fn permit_of_dropped_waiter_goes_to_next() {
    let queue = FairQueue::new(LIMITS);
    let held = permit(&queue, (1, 1)).unwrap();
    let first = queue.enter(project(1), workload(1)).unwrap();
    let second = queue.enter(project(1), workload(1)).unwrap();
    drop(held);
    drop(first);
    assert!(second.now_or_never().is_some(), "the permit is lost");
}
