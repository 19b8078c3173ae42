//! Accepts task envelopes: refuses the invalid ones before anything changes on the node, and runs each of the others once.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use gpuaas_crash_points::{Point, reach};
use gpuaas_handler::{Context, ControlPlane, Entry};
use gpuaas_host::Host;
use gpuaas_model::{Code, TaskId, Timestamp};
use gpuaas_trust::{Envelope, EnvelopeError, KeySetError, SigningKeySet, TaskStatement};
use gpuaas_wire::{
    session::{AgentProblem, CLOCK_SKEW_MAX, LedgerMark, Refusal, TaskLine},
    task::{TaskFailure, TaskOutcome, TaskSupport},
};
use tokio::sync::{Mutex as AsyncMutex, broadcast};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog,
    clock::Ports,
    crash_points,
    ledger::{self, HostOwner, Ledger},
    version,
};

/// Progress lines that a subscriber may lag behind before it loses the oldest.
const LINES_BUFFERED: usize = 64;
/// Most tasks in progress at once, including those that wait for the mutation lock.
const TASKS_MAX: usize = 32;

/// The identity that an envelope must name.
#[derive(Clone, Debug)]
pub(crate) struct Addressee {
    pub(crate) control_plane: String,
    pub(crate) node: gpuaas_model::NodeId,
    pub(crate) epoch: u64,
}

struct Running {
    lines: broadcast::Sender<TaskLine>,
    cancel: CancellationToken,
}

/// Executes tasks and answers repeated envelopes from the ledger.
pub(crate) struct Runner {
    host: Arc<dyn Host>,
    control_plane: Arc<dyn ControlPlane>,
    addressee: Addressee,
    keys: Mutex<SigningKeySet>,
    catalog: Vec<Entry>,
    /// An error if the ledger cannot be used: then no task runs, because the agent cannot know which tasks already ran.
    ledger: Result<AsyncMutex<Ledger>, AgentProblem>,
    running: Mutex<HashMap<TaskId, Running>>,
    /// Held by the task that changes the node; at most one does at a time.
    mutation: AsyncMutex<()>,
    ports: Ports,
}

/// Result of an accepted envelope.
pub(crate) enum Accepted {
    /// The ledger has the task's end; the response is these lines.
    Known(Vec<TaskLine>),
    /// The task runs: receives its lines as they are produced.
    Running(broadcast::Receiver<TaskLine>),
}

impl Runner {
    pub(crate) fn new(
        host: Arc<dyn Host>,
        control_plane: Arc<dyn ControlPlane>,
        addressee: Addressee,
        keys: SigningKeySet,
        ledger: Result<Ledger, AgentProblem>,
    ) -> Arc<Self> {
        let catalog = catalog::catalog(version::schemas);
        Self::with_catalog(host, control_plane, addressee, keys, ledger, (catalog, Ports::of_this_machine()))
    }

    pub(crate) fn with_catalog(
        host: Arc<dyn Host>,
        control_plane: Arc<dyn ControlPlane>,
        addressee: Addressee,
        keys: SigningKeySet,
        ledger: Result<Ledger, AgentProblem>,
        (catalog, ports): (Vec<Entry>, Ports),
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
            control_plane,
            addressee,
            keys: Mutex::new(keys),
            catalog,
            ledger: ledger.map(AsyncMutex::new),
            running: Mutex::default(),
            mutation: AsyncMutex::new(()),
            ports,
        })
    }

    /// Returns the catalog in the form in which the hello message carries it.
    pub(crate) fn support(&self) -> Vec<TaskSupport> {
        version::advertised(catalog::support(&self.catalog))
    }

    /// Returns the highest fence that was ever accepted; 0 without a usable ledger.
    pub(crate) async fn fence(&self) -> u64 {
        match &self.ledger {
            Ok(ledger) => ledger.lock().await.fence(),
            Err(_) => 0,
        }
    }

    /// Returns the mark of the ledger in use; `None` without a usable ledger.
    pub(crate) async fn ledger_mark(&self) -> Option<LedgerMark> {
        match &self.ledger {
            Ok(ledger) => Some(ledger.lock().await.mark()),
            Err(_) => None,
        }
    }

    /// Returns the reason why the agent takes no tasks; `None` if it takes tasks.
    pub(crate) fn problem(&self) -> Option<&AgentProblem> {
        self.ledger.as_ref().err()
    }

    /// Returns the signing keys in use.
    pub(crate) fn key_set(&self) -> SigningKeySet {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the signing keys.
    pub(crate) fn set_keys(&self, keys: SigningKeySet) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Accepts or refuses an envelope. A refusal changes nothing on the node and is final: the control plane counts the task as ended, so
    /// the task must not run when its envelope arrives again. An invalid envelope, or one under expired signing keys, may arrive again
    /// after a change of keys and is then checked again.
    pub(crate) async fn accept(self: &Arc<Self>, envelope: &[u8]) -> Result<Accepted, Refusal> {
        let keys = self.key_set();
        let statement =
            Envelope::open(envelope, &keys).map_err(|error| refuse(Code::EnvelopeInvalid, error.to_string()))?;
        self.check_addressee(&statement)?;
        let ledger = self.ledger.as_ref();
        let ledger = ledger.map_err(|problem| refuse(Code::AgentLedgerDamaged, problem.detail.clone()))?;
        let mut ledger = ledger.lock().await;
        if let Some(known) = self.recorded(&ledger, statement.task) {
            return Ok(known);
        }
        if let Some(refusal) = ledger.refusal(statement.task) {
            return Err(refusal.clone());
        }
        if keys.is_expired(self.now()) {
            let error = KeySetError::Expired(keys.expires_at);
            return Err(refuse(Code::EnvelopeInvalid, error.to_string()));
        }
        match self.begin(&mut ledger, &statement).await {
            Ok(position) => {
                drop(ledger);
                Ok(Accepted::Running(self.start(position, statement)))
            }
            Err(refusal) => {
                ledger.refuse(&statement, refusal.clone(), self.now());
                Err(refusal)
            }
        }
    }

    /// Records in the ledger that the task begins, and returns the position of its catalog entry.
    async fn begin(&self, ledger: &mut Ledger, statement: &TaskStatement) -> Result<usize, Refusal> {
        let position = self.check_statement(ledger, statement)?;
        if self.running.lock().unwrap_or_else(PoisonError::into_inner).len() >= TASKS_MAX {
            return Err(refuse(Code::NodeBusy, format!("{TASKS_MAX} tasks are already running")));
        }
        let owner = HostOwner::of(statement).filter(|_| self.catalog[position].claims_host());
        ledger.begin(statement, owner, self.now()).await.map_err(|error| refuse(error.code(), error.to_string()))?;
        Ok(position)
    }

    /// Cancels a running task; its handler notices at its next check.
    pub(crate) fn cancel(&self, task: TaskId) {
        if let Some(running) = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&task) {
            running.cancel.cancel();
        }
    }

    fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    fn check_addressee(&self, statement: &TaskStatement) -> Result<(), Refusal> {
        let us = &self.addressee;
        let wrong = if statement.control_plane != us.control_plane {
            "another control plane"
        } else if statement.node != us.node {
            "another node"
        } else if statement.epoch != us.epoch {
            "another enrollment of this node"
        } else {
            return Ok(());
        };
        Err(refuse(Code::EnvelopeRecipientMismatch, format!("the task is for {wrong}")))
    }

    fn recorded(&self, ledger: &Ledger, task: TaskId) -> Option<Accepted> {
        match ledger.entry(task)? {
            ledger::Entry::Ended(outcome) => Some(Accepted::Known(vec![TaskLine::Ended(outcome.clone())])),
            ledger::Entry::Interrupted => Some(Accepted::Known(vec![TaskLine::Interrupted])),
            ledger::Entry::Begun => {
                let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                Some(match running.get(&task) {
                    Some(running) => Accepted::Running(running.lines.subscribe()),
                    None => Accepted::Known(vec![TaskLine::Interrupted]),
                })
            }
        }
    }

    /// Checks that the task may run now, and returns the position of its catalog entry.
    fn check_statement(&self, ledger: &Ledger, statement: &TaskStatement) -> Result<usize, Refusal> {
        let now = self.now();
        if statement.expires_at <= now {
            let late = EnvelopeError::Expired(statement.expires_at);
            return Err(refuse(Code::EnvelopeExpired, format!("{late}; this node's clock is {now}")));
        }
        if statement.issued_at > now.plus(CLOCK_SKEW_MAX) {
            let message = format!(
                "the task was issued at {}, which is in the future; this node's clock is {now}",
                statement.issued_at
            );
            return Err(refuse(Code::EnvelopeExpired, message));
        }
        if statement.fence < ledger.fence() {
            let message = format!("the task has fence {}, lower than {}", statement.fence, ledger.fence());
            return Err(refuse(Code::FenceTooLow, message));
        }
        // A restart loses refusals that are only in memory. The attempt number then keeps a refused task from running after a later attempt
        // of its step.
        if let Some(seen) = statement.step.map(|step| ledger.attempt(step)).filter(|seen| statement.attempt < *seen) {
            let message = format!(
                "the task is attempt {} of its step, but attempt {seen} was already started",
                statement.attempt
            );
            return Err(refuse(Code::StaleAttempt, message));
        }
        let known = |entry: &Entry| {
            entry.task_type.as_str() == statement.task_type && entry.schemas.contains(&statement.schema)
        };
        let position = self.catalog.iter().position(known).ok_or_else(|| {
            refuse(
                Code::TaskUnknown,
                format!("this agent does not support {} in schema {}", statement.task_type, statement.schema),
            )
        })?;
        (self.catalog[position].accepts)(&statement.params)
            .map_err(|error| refuse(Code::TaskParamsInvalid, error.to_string()))?;
        check_ownership(&self.catalog[position], ledger.owner(), statement)?;
        Ok(position)
    }

    fn start(self: &Arc<Self>, position: usize, statement: TaskStatement) -> broadcast::Receiver<TaskLine> {
        let (lines, receiver) = broadcast::channel(LINES_BUFFERED);
        let cancel = CancellationToken::new();
        let running = Running { lines: lines.clone(), cancel: cancel.clone() };
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(statement.task, running);
        let runner = self.clone();
        let work = async move { runner.run(position, statement, lines, cancel).await };
        self.ports.runtime.spawn("task", Box::pin(work));
        receiver
    }

    async fn run(
        self: Arc<Self>,
        position: usize,
        statement: TaskStatement,
        lines: broadcast::Sender<TaskLine>,
        cancel: CancellationToken,
    ) {
        // No receiver is fine: the ledger keeps the result.
        let _ = lines.send(TaskLine::Accepted);
        let progress = lines.clone();
        let task_type = self.catalog[position].task_type;
        reach(Point::TaskBegun(task_type));
        let context = Context {
            host: crash_points::of_task(self.host.clone(), task_type),
            control_plane: self.control_plane.clone(),
            cancel: cancel.clone(),
            deadline: statement.expires_at,
            progress: Arc::new(move |progress_line| {
                let _ = progress.send(TaskLine::Progress(progress_line));
            }),
        };
        let (outcome, frees_host) = match self.attempt(position, &statement, context, &cancel).await {
            Ok(result) => {
                let frees_host = (self.catalog[position].frees_host)(&result);
                (TaskOutcome::Succeeded { result }, frees_host)
            }
            Err(failure) => (TaskOutcome::Failed { failure }, false),
        };
        reach(Point::TaskDone(task_type));
        self.record_end(statement.task, outcome.clone(), frees_host).await;
        reach(Point::TaskEnded(task_type));
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&statement.task);
        let _ = lines.send(TaskLine::Ended(outcome));
    }

    async fn record_end(&self, task: TaskId, outcome: TaskOutcome, frees_host: bool) {
        // Without a ledger no task ran.
        let Ok(ledger) = &self.ledger else { return };
        if let Err(error) = ledger.lock().await.end(task, outcome, frees_host, self.now()).await {
            tracing::error!(%task, %error, "could not record the end of a task; retrying with the next one");
        }
    }

    async fn attempt(
        &self,
        position: usize,
        statement: &TaskStatement,
        context: Context,
        cancel: &CancellationToken,
    ) -> Result<serde_json::Value, TaskFailure> {
        let entry = &self.catalog[position];
        let (runtime, given_up_at) = (&self.ports.runtime, statement.expires_at.plus(HANDLER_GRACE));
        let work = async {
            let _one_at_a_time = if entry.is_exclusive { Some(self.mutation.lock().await) } else { None };
            (entry.run)(statement.params.clone(), context).await
        };
        // A panic of the handler ends the task as failed; otherwise the task would appear to run forever.
        let work = AssertUnwindSafe(work).catch_unwind();
        tokio::select! {
            biased;
            // Handlers that wait observe deadline and cancellation themselves and end with their evidence; these branches stop the handlers
            // that do not.
            result = work => result.unwrap_or_else(|panic| {
                gpuaas_crash_points::resume_if_died(panic);
                Err(TaskFailure::new(Code::Internal, format!("the handler of {} panicked", statement.task_type)))
            }),
            () = runtime.sleep_until(given_up_at) => {
                Err(TaskFailure::new(Code::TaskTimedOut, format!("{} did not end by its deadline", statement.task_type)))
            }
            () = async { cancel.cancelled().await; runtime.sleep_until(self.now().plus(HANDLER_GRACE)).await } => {
                Err(TaskFailure::new(Code::TaskCancelled, format!("{} was cancelled", statement.task_type)))
            }
        }
    }
}

/// Refuses a task for another workload or allocation than the one that owns the host in this enrollment.
fn check_ownership(entry: &Entry, owner: Option<HostOwner>, statement: &TaskStatement) -> Result<(), Refusal> {
    let Some(served) = HostOwner::of(statement) else {
        if entry.task_type.is_for_workload() || statement.workload.is_some() {
            let message = format!("{} names no workload or no allocation", entry.task_type);
            return Err(refuse(Code::EnvelopeRecipientMismatch, message));
        }
        return Ok(());
    };
    match owner {
        Some(owner) if owner.epoch == served.epoch && owner != served => {
            let HostOwner { workload, allocation, .. } = owner;
            let message = format!("workload {workload} owns this host with allocation {allocation}");
            Err(refuse(Code::HostInUse, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Time that a handler has to end by itself after its deadline or its cancellation.
const HANDLER_GRACE: Duration = Duration::from_secs(2);

fn refuse(code: Code, message: String) -> Refusal {
    Refusal { code, message }
}

#[cfg(test)]
mod tests;
