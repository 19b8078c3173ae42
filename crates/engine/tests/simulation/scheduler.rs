//! Runs every simulated process on one thread. The seed decides which task is polled next, and simulated time advances only when no task
//! is ready.
//!
//! The store may answer from its own threads, at times that the seed does not control. Therefore a task that uses the store is polled until
//! the store is idle: no other task runs meanwhile and no simulated time passes, as if a statement took no time. This also detects
//! a process that waits for something else while it holds a transaction: the store never becomes idle.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use gpuaas_crash_points::Died;
use gpuaas_model::{Clock, Runtime, Timestamp};
use gpuaas_store::Store;

use gpuaas_test_support::Chance;

/// The run fails if the store is not idle after this long in real time.
const STORE_WAIT_MAX: Duration = Duration::from_secs(20);
/// Polls allowed without simulated time passing; more means a livelock. A busy moment takes a few hundred.
const POLLS_MAX: u32 = 50_000;

/// A simulated process: a group of tasks that are killed and frozen together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process(u64);

/// Kills the running process at this point of its code.
pub(crate) fn die_here() -> ! {
    resume_unwind(Box::new(Died))
}

pub(crate) struct Scheduler {
    me: Weak<Self>,
    state: Mutex<State>,
}

struct State {
    now: Timestamp,
    /// Polls since simulated time last advanced.
    polls: u32,
    numbers: u64,
    ready: Vec<u64>,
    /// The task that is polled next, before all ready ones.
    first: Option<u64>,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(Timestamp, u64), Waker>,
    living: BTreeSet<Process>,
    frozen: BTreeSet<Process>,
    running: Option<Process>,
    dead: Vec<Process>,
    chance: Chance,
}

struct Task {
    process: Process,
    /// `None` while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    scheduler: Weak<Scheduler>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(scheduler) = self.scheduler.upgrade() else { return };
        if !self.queued.swap(true, Ordering::AcqRel) {
            scheduler.state().ready.push(self.id);
        }
    }
}

enum Next {
    PollTask(u64),
    /// Wakers of all timers that are due at the earliest time.
    Alarm(Vec<Waker>),
    Nothing,
}

impl Scheduler {
    pub(crate) fn new(now: Timestamp, chance: Chance) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            state: Mutex::new(State {
                now,
                polls: 0,
                numbers: 0,
                ready: Vec::new(),
                first: None,
                tasks: BTreeMap::new(),
                timers: BTreeMap::new(),
                living: BTreeSet::new(),
                frozen: BTreeSet::new(),
                running: None,
                dead: Vec::new(),
                chance,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a process without tasks.
    pub(crate) fn process(&self) -> Process {
        let mut state = self.state();
        state.numbers += 1;
        let process = Process(state.numbers);
        state.living.insert(process);
        process
    }

    /// Returns the process whose task is being polled.
    pub(crate) fn running(&self) -> Option<Process> {
        self.state().running
    }

    pub(crate) fn is_frozen(&self, process: Process) -> bool {
        self.state().frozen.contains(&process)
    }

    /// Stops polling the process's tasks until it is thawed. Other processes and time continue.
    pub(crate) fn freeze(&self, process: Process) {
        self.state().frozen.insert(process);
    }

    pub(crate) fn thaw(&self, process: Process) {
        self.state().frozen.remove(&process);
    }

    /// Kills a process: drops all its tasks. Does nothing if it is dead.
    pub(crate) fn kill(&self, process: Process) {
        let mut state = self.state();
        if !state.living.remove(&process) {
            return;
        }
        state.frozen.remove(&process);
        state.dead.push(process);
        let ids: Vec<u64> = state.tasks.iter().filter(|(_, task)| task.process == process).map(|(id, _)| *id).collect();
        let ended: Vec<Task> = ids.iter().filter_map(|id| state.tasks.remove(id)).collect();
        drop(state);
        // Drop the tasks without the lock, because dropping them may wake other tasks.
        drop(ended);
    }

    /// Kills every process.
    pub(crate) fn kill_all(&self) {
        let living = self.state().living.clone();
        living.into_iter().for_each(|process| self.kill(process));
    }

    /// Returns the processes that died since the last call.
    pub(crate) fn take_dead(&self) -> Vec<Process> {
        std::mem::take(&mut self.state().dead)
    }

    /// Spawns `future` as a task of the process. Drops it if the process is dead.
    pub(crate) fn spawn(&self, process: Process, future: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        if !state.living.contains(&process) {
            drop(state);
            return;
        }
        state.numbers += 1;
        let id = state.numbers;
        let waker = Arc::new(TaskWaker { id, queued: AtomicBool::new(true), scheduler: self.me.clone() });
        state.tasks.insert(id, Task { process, future: Some(Box::pin(future)), waker });
        state.ready.push(id);
    }

    /// Spawns `future` and polls it next, so that it sees the state exactly as the running task leaves it.
    pub(crate) fn spawn_first(&self, process: Process, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn(process, future);
        let mut state = self.state();
        let newest = state.ready.pop();
        // One that was spawned earlier in this turn goes back to the ready tasks.
        if let Some(before) = std::mem::replace(&mut state.first, newest) {
            state.ready.push(before);
        }
    }

    pub(crate) fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(self.now().plus(wait))
    }

    pub(crate) fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let scheduler = self.me.upgrade().expect("it runs");
        Box::pin(Sleep { scheduler, at, timer: None })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.state().now
    }

    /// Polls tasks until `finished` returns true. Fails if that takes longer than `until` in simulated time, if a process panics, if no
    /// task is ready and no timer is set, if too many polls happen without time passing, or if the store does not become idle.
    pub(crate) async fn run(
        &self,
        store: &Store,
        until: Timestamp,
        mut finished: impl FnMut() -> bool,
    ) -> Result<(), String> {
        while !finished() {
            match self.next() {
                Next::PollTask(id) => self.poll_task(id, store).await?,
                Next::Alarm(due) => due.into_iter().for_each(Waker::wake),
                Next::Nothing => return Err("no task is ready and no timer is set".to_owned()),
            }
            if self.now() > until {
                return Err(format!("the run is not finished at {until}"));
            }
        }
        Ok(())
    }

    fn next(&self) -> Next {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(first) = state.first.take() {
            return Next::PollTask(first);
        }
        state.ready.retain(|id| state.tasks.contains_key(id));
        let is_frozen = |id: &u64| state.tasks.get(id).is_some_and(|task| state.frozen.contains(&task.process));
        let may_run = |id: &u64| state.frozen.is_empty() || !is_frozen(id);
        let candidates: Vec<usize> =
            state.ready.iter().enumerate().filter(|(_, id)| may_run(id)).map(|(at, _)| at).collect();
        if !candidates.is_empty() {
            let at = state.chance.pick(&candidates);
            return Next::PollTask(state.ready.remove(at));
        }
        let Some((&(at, _), _)) = state.timers.first_key_value() else { return Next::Nothing };
        state.now = state.now.max(at);
        state.polls = 0;
        let mut due = Vec::new();
        while let Some(timer) = state.timers.first_entry().filter(|timer| timer.key().0 <= at) {
            due.push(timer.remove());
        }
        Next::Alarm(due)
    }

    /// Polls a task, repeatedly while it waits for the store.
    async fn poll_task(&self, id: u64, store: &Store) -> Result<(), String> {
        let (process, mut future, waker) = {
            let mut state = self.state();
            let Some(task) = state.tasks.get_mut(&id) else { return Ok(()) };
            let Some(future) = task.future.take() else { return Ok(()) };
            (task.process, future, task.waker.clone())
        };
        waker.queued.store(false, Ordering::Release);
        loop {
            {
                let mut state = self.state();
                state.running = Some(process);
                state.polls += 1;
                if state.polls > POLLS_MAX {
                    return Err(format!("livelock: {process:?} runs again and again while no time passes"));
                }
            }
            let std_waker = Waker::from(waker.clone());
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&std_waker))));
            self.state().running = None;
            match polled {
                Ok(Poll::Ready(())) => {
                    self.state().tasks.remove(&id);
                    drop(future);
                    return self.wait_until_idle(store).await;
                }
                Ok(Poll::Pending) => {
                    if !store.is_idle() && self.woken_before_idle(&waker, store).await? {
                        continue;
                    }
                    if let Some(task) = self.state().tasks.get_mut(&id) {
                        task.future = Some(future);
                    }
                    return Ok(());
                }
                Err(payload) => {
                    drop(future);
                    if !payload.is::<Died>() {
                        return Err(format!("a process panicked: {}", panic_message(&*payload)));
                    }
                    self.kill(process);
                    return self.wait_until_idle(store).await;
                }
            }
        }
    }

    /// Waits until the task is woken (true) or the store is idle (false).
    async fn woken_before_idle(&self, waker: &TaskWaker, store: &Store) -> Result<bool, String> {
        let mut store_wait = StoreWait::new();
        loop {
            store_wait.wait().await?;
            if waker.queued.swap(false, Ordering::AcqRel) {
                self.state().ready.retain(|id| *id != waker.id);
                return Ok(true);
            }
            if store.is_idle() {
                return Ok(false);
            }
        }
    }

    async fn wait_until_idle(&self, store: &Store) -> Result<(), String> {
        let mut store_wait = StoreWait::new();
        while !store.is_idle() {
            store_wait.wait().await?;
        }
        Ok(())
    }
}

/// Yields to the store's threads and tasks, with a limit in real time.
struct StoreWait(Instant);

impl StoreWait {
    fn new() -> Self {
        Self(Instant::now())
    }

    async fn wait(&mut self) -> Result<(), String> {
        if self.0.elapsed() > STORE_WAIT_MAX {
            return Err("the store does not become idle: a transaction is open across a wait".to_owned());
        }
        std::thread::yield_now();
        tokio::task::yield_now().await;
        Ok(())
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

struct Sleep {
    scheduler: Arc<Scheduler>,
    at: Timestamp,
    timer: Option<(Timestamp, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let scheduler = self.scheduler.clone();
        let mut state = scheduler.state();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let key = match self.timer {
            Some(key) => key,
            None => {
                state.numbers += 1;
                (self.at, state.numbers)
            }
        };
        let before = state.timers.insert(key, context.waker().clone());
        drop(state);
        drop(before);
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let timer = self.scheduler.state().timers.remove(&key);
            drop(timer);
        }
    }
}

/// Yields once. If the process is frozen meanwhile, the code after this call runs only after the thaw.
pub(crate) async fn yield_once() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The clock that all processes share.
pub(crate) struct SimulatedClock(pub(crate) Arc<Scheduler>);

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// The runtime of one process: spawns tasks in it and provides simulated time.
pub(crate) struct ProcessRuntime {
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) process: Process,
}

impl Runtime for ProcessRuntime {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) {
        self.scheduler.spawn(self.process, future);
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.scheduler.now().as_millis()).unwrap_or_default())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        self.scheduler.sleep_until(at)
    }
}
