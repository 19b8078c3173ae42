//! Permits for expensive calls, shared fairly among projects: a project with slow or hostile workloads delays only its own calls.
//!
//! Guarantees: permits are limited per workload and per project; a free permit goes to the project with the fewest permits, and there to
//! the oldest waiter. The number of waiters is limited too: when it is reached, the newest waiter of the project with the most waiters is
//! refused. There is no clock: the caller limits its wait by dropping it.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use gpuaas_model::{ProjectId, WorkloadId};
use tokio::sync::oneshot;

/// Limits on permits and on waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Total number of permits.
    pub permits: usize,
    /// Permits of one project.
    pub per_project: usize,
    /// Permits of one workload.
    pub per_workload: usize,
    /// Total number of waiters.
    pub waiting: usize,
    /// Waiters of one workload.
    pub waiting_per_workload: usize,
}

/// Too many calls wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many calls are already waiting")]
pub struct QueueFull;

/// A queue of permits and waiters.
pub struct FairQueue {
    limits: QueueLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: usize,
    by_project: HashMap<ProjectId, usize>,
    by_workload: HashMap<WorkloadId, usize>,
    /// Oldest first.
    waiting: Vec<Waiting>,
    entered: u64,
}

struct Waiting {
    number: u64,
    owner: Owner,
    grant: oneshot::Sender<()>,
}

/// The owner of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    project: ProjectId,
    workload: WorkloadId,
}

impl FairQueue {
    /// Creates a queue without waiters.
    pub fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Enters the queue; the returned future resolves to a permit. Dropping it leaves the queue.
    pub fn enter(self: &Arc<Self>, project: ProjectId, workload: WorkloadId) -> Result<Wait, QueueFull> {
        let owner = Owner { project, workload };
        let (number, granted) = self.locked(|state| state.enter(owner, &self.limits))?;
        Ok(Wait { queue: self.clone(), owner, number, granted, is_over: false })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A place in the queue.
pub struct Wait {
    queue: Arc<FairQueue>,
    owner: Owner,
    number: u64,
    granted: oneshot::Receiver<()>,
    is_over: bool,
}

impl Future for Wait {
    type Output = Result<CallPermit, QueueFull>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let granted = ready!(Pin::new(&mut self.granted).poll(cx));
        self.is_over = true;
        // Dropped without a grant: this waiter was removed in favor of another project's.
        let permit = granted.map(|()| CallPermit { queue: self.queue.clone(), owner: self.owner });
        Poll::Ready(permit.map_err(|_| QueueFull))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (limits, owner, number) = (self.queue.limits, self.owner, self.number);
        let granted = &mut self.granted;
        self.queue.locked(|state| {
            state.waiting.retain(|waiting| waiting.number != number);
            if granted.try_recv().is_ok() {
                // The permit was granted at the moment in which this waiter gave up.
                state.release(owner, &limits);
            }
        });
    }
}

/// A permit; dropping it releases it.
pub struct CallPermit {
    queue: Arc<FairQueue>,
    owner: Owner,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let (limits, owner) = (self.queue.limits, self.owner);
        self.queue.locked(|state| state.release(owner, &limits));
    }
}

impl State {
    fn enter(&mut self, owner: Owner, limits: &QueueLimits) -> Result<(u64, oneshot::Receiver<()>), QueueFull> {
        let of_workload = self.waiting.iter().filter(|waiting| waiting.owner.workload == owner.workload).count();
        if of_workload >= limits.waiting_per_workload {
            return Err(QueueFull);
        }
        if self.waiting.len() >= limits.waiting {
            self.evict_waiter(owner.project)?;
        }
        self.entered += 1;
        let (grant, granted) = oneshot::channel();
        self.waiting.push(Waiting { number: self.entered, owner, grant });
        self.grant_permits(limits);
        Ok((self.entered, granted))
    }

    /// Removes the newest waiter of the project with the most waiters. Refuses the new one instead if its own project has the most.
    fn evict_waiter(&mut self, newcomer: ProjectId) -> Result<(), QueueFull> {
        let mut by_project: HashMap<ProjectId, usize> = HashMap::new();
        self.waiting.iter().for_each(|waiting| *by_project.entry(waiting.owner.project).or_default() += 1);
        let most = by_project.values().copied().max().unwrap_or(0);
        if by_project.get(&newcomer).copied().unwrap_or(0) + 1 >= most {
            return Err(QueueFull);
        }
        let is_of_largest = |waiting: &Waiting| by_project.get(&waiting.owner.project) == Some(&most);
        if let Some(newest) = self.waiting.iter().rposition(is_of_largest) {
            self.waiting.remove(newest);
        }
        Ok(())
    }

    /// Grants free permits to the next waiters.
    fn grant_permits(&mut self, limits: &QueueLimits) {
        while self.held < limits.permits {
            let may = |owner: &Owner| {
                self.of_project(owner) < limits.per_project && self.of_workload(owner) < limits.per_workload
            };
            let waiting = self.waiting.iter().enumerate().filter(|(_, waiting)| may(&waiting.owner));
            let next = waiting.min_by_key(|(_, waiting)| (self.of_project(&waiting.owner), waiting.number));
            let Some(at) = next.map(|(at, _)| at) else { return };
            let Waiting { owner, grant, .. } = self.waiting.remove(at);
            // A waiter that gave up has already left the queue.
            if grant.send(()).is_ok() {
                self.held += 1;
                *self.by_project.entry(owner.project).or_default() += 1;
                *self.by_workload.entry(owner.workload).or_default() += 1;
            }
        }
    }

    fn release(&mut self, owner: Owner, limits: &QueueLimits) {
        self.held -= 1;
        decrement(&mut self.by_project, owner.project);
        decrement(&mut self.by_workload, owner.workload);
        self.grant_permits(limits);
    }

    fn of_project(&self, owner: &Owner) -> usize {
        self.by_project.get(&owner.project).copied().unwrap_or(0)
    }

    fn of_workload(&self, owner: &Owner) -> usize {
        self.by_workload.get(&owner.workload).copied().unwrap_or(0)
    }
}

/// Decrements a count and removes it at zero.
fn decrement<K: std::hash::Hash + Eq>(held: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = held.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            held.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
