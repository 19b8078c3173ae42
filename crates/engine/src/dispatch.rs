//! One task on its way to a node and back: signed, recorded, pushed, followed.
//!
//! The row with the whole envelope is written before the push, so that after a crash the very same envelope is sent again and the
//! node's ledger decides what happened to it. Recording the outcome is the caller's, in the transaction of what it means.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use gpuaas_model::{
    AuditAction, AuditResult, Code, CorrelationId, EnrolledNode, IllegalTransition, OperationId, StepId, TaskId,
    TaskState, TaskType, Timestamp,
};
use gpuaas_store::{StoreError, TaskRecord, Tx};
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{
    bounds::cut,
    task::{TaskFailure, TaskOutcome, shaped},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    effects::ProgressSink,
    engine::Engine,
    error::CommandError,
    keys::KeysError,
    ownership::{self, AccessError, NodeAccess, NotHeld, TakesNoTasks},
    port::{DispatchError, TaskUpdate},
    record::audit_task,
};

/// How long a node lease lasts; it is renewed by every task that is signed under it.
const NODE_LEASE_TTL: Duration = Duration::from_secs(15);
/// After a task's own deadline the node still has this long to say how it ended, with its evidence.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// A node whose channel broke is asked again after this long, if it did not connect before.
const LOST_RETRY: Duration = Duration::from_secs(2);

/// How often a task's progress is taken up at most: each time is a change of rows.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What a task carries out.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The operation and its step; `None` for a task outside of operations.
    pub(crate) step: Option<(OperationId, StepId)>,
    pub(crate) attempt: u32,
    pub(crate) correlation: CorrelationId,
}

impl Origin {
    /// A task outside of operations.
    pub(crate) fn alone(correlation: CorrelationId) -> Self {
        Self { step: None, attempt: 1, correlation }
    }
}

/// A recorded task on its way to its node.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) task: TaskRecord,
    /// The access that it was signed under; `None` where another process signed it, or an earlier one: it is decided again.
    access: Option<NodeAccess>,
}

impl Outgoing {
    /// A task that was signed earlier.
    pub(crate) fn again(task: TaskRecord) -> Self {
        Self { task, access: None }
    }
}

/// How a task ended, as far as the control plane knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskEnd {
    /// The node said so.
    Outcome(TaskOutcome),
    /// The agent died in the middle.
    Interrupted,
}

impl Engine {
    /// Signs a task and writes its row, its event and its audit record. It is sent after the caller's commit. Its parameters are the newest ones;
    /// they go in the newest version, from `oldest` on, that the node's agent knows.
    pub(crate) async fn record_task(
        &self,
        tx: &mut Tx,
        access: NodeAccess,
        origin: Origin,
        (task_type, oldest): (TaskType, u32),
        params: Value,
        expires_at: Timestamp,
    ) -> Result<Outgoing, StepStartError> {
        access.must_take_tasks()?;
        if task_type.is_for_workload() && access.workload().is_none() {
            return Err(StepStartError::Render(format!("{task_type} is signed for workloads alone")));
        }
        let now = self.ports().clock.now();
        let (EnrolledNode { node, epoch }, workload) = (access.node(), access.workload());
        let (project, allocation) = access.holding().map(|holding| (holding.project, holding.allocation)).unzip();
        let (operation, step) = origin.step.unzip();
        // Replicas that live sign under one fence; it grows when its holder is gone, and with it all that it may still send.
        let fence = tx.shared_fence(&format!("node/{node}"), self.replica(), NODE_LEASE_TTL).await?;
        let id = TaskId::generate(&*self.ports().clock, &*self.ports().entropy);
        let (schema, params) = shaped(task_type, oldest, params, access.support());
        let statement = TaskStatement {
            control_plane: self.keys().control_plane().to_owned(),
            node,
            epoch,
            allocation,
            workload,
            operation,
            step,
            attempt: origin.attempt,
            task: id,
            task_type: task_type.as_str().to_owned(),
            schema,
            params: params.clone(),
            issued_at: now,
            expires_at,
            fence,
            correlation: origin.correlation,
        };
        let signed = self.keys().ring(tx).await?.sign(&statement)?;
        let task = TaskRecord {
            id,
            node,
            epoch,
            project,
            allocation,
            workload,
            operation,
            step,
            attempt: origin.attempt,
            task_type,
            schema,
            params,
            state: TaskState::Dispatched,
            outcome: None,
            key_id: signed.key_id,
            envelope_sha256: signed.sha256,
            envelope: signed.envelope,
            fence,
            correlation: origin.correlation,
            created_at: now,
            dispatched_at: Some(now),
            ended_at: None,
            expires_at,
        };
        tx.insert_task(&task).await?;
        audit_task(tx, &task, access.name().as_str(), AuditAction::TaskDispatch, AuditResult::Accepted).await?;
        Ok(Outgoing { task, access: Some(access) })
    }

    /// Pushes a recorded task and follows it to its end, over as many channels as it takes.
    ///
    /// Ends by itself shortly after the task's expiry: with the node's own answer if there is one, else as timed out. Whoever
    /// cancels tells the node at once; one that had not the task then, or was away, is told again with it.
    pub(crate) async fn follow_task(
        &self,
        outgoing: Outgoing,
        progress: &ProgressSink,
        cancelled: &CancellationToken,
    ) -> TaskEnd {
        let Outgoing { task, access } = outgoing;
        let give_up = self.ports().runtime.sleep_until(task.expires_at.plus(ANSWER_GRACE));
        tokio::select! {
            biased;
            end = self.follow_until_end(&task, access, progress, cancelled) => end,
            () = give_up => {
                self.nodes().cancel(task.node, task.id).await;
                let message = format!("{} did not end by its deadline", task.task_type);
                TaskEnd::Outcome(TaskOutcome::Failed { failure: TaskFailure::new(Code::TaskTimedOut, message) })
            }
        }
    }

    async fn follow_until_end(
        &self,
        task: &TaskRecord,
        mut access: Option<NodeAccess>,
        progress: &ProgressSink,
        cancelled: &CancellationToken,
    ) -> TaskEnd {
        // One that may lack the key is asked again; one that was known to have it before it was asked means what it says.
        let mut may_lack_keys = true;
        loop {
            // Asked for before the push: a connection that comes while it fails is not missed.
            let connection = self.next_connection();
            let dispatched = match self.access_again(task, access.take()).await {
                Ok(access) => match access.must_take_tasks() {
                    Ok(()) => self.nodes().dispatch(&access, &task.envelope).await,
                    // What became of it there, nobody can say: it is not sent again.
                    Err(refused) => {
                        let failure = TaskFailure::new(refused.code, refused.to_string());
                        return TaskEnd::Outcome(TaskOutcome::Failed { failure });
                    }
                },
                Err(AccessError::NotHeld(why)) => {
                    let failure = TaskFailure::new(Code::NodeNotHeld, why.to_string());
                    return TaskEnd::Outcome(TaskOutcome::Failed { failure });
                }
                Err(AccessError::Store(error)) => Err(DispatchError::Lost(error.to_string())),
            };
            if dispatched.is_ok() && cancelled.is_cancelled() {
                self.cancel_beside(task);
            }
            let lost = match dispatched {
                Ok(updates) => match self.follow_updates(task, updates, progress).await {
                    // A node that connected in the very moment of a key rotation, or that takes its time, is given the keys later.
                    Ok(end) if is_of_unknown_key(&end) && may_lack_keys => {
                        may_lack_keys = self.may_lack_keys(task.node).await;
                        self.key_tending().doubt();
                        DispatchError::Lost("it does not know the key that signed the task".to_owned())
                    }
                    Ok(end) => return end,
                    Err(lost) => lost,
                },
                Err(lost) => lost,
            };
            tracing::debug!(task = %task.id, node = %task.node, %lost, "waiting for the node's channel");
            progress(format!("waiting for the node: {lost}"));
            match lost {
                DispatchError::NotConnected => connection.await,
                // Perhaps only the way there broke, and no connection will come that would wake us.
                DispatchError::Lost(_) => tokio::select! {
                    biased;
                    () = connection => {}
                    () = self.ports().runtime.sleep_until(self.ports().clock.now().plus(LOST_RETRY)) => {}
                },
            }
        }
    }

    /// The access of a task that is about to be pushed: the one it was signed under, or as it is decided now. None of rows that went back.
    async fn access_again(&self, task: &TaskRecord, signed: Option<NodeAccess>) -> Result<NodeAccess, AccessError> {
        self.store().must_go_on()?;
        match signed {
            Some(access) => Ok(access),
            None => ownership::for_task(&mut self.store().read().await?, task).await,
        }
    }

    /// Tells the node to end the task, and does not wait for its word.
    fn cancel_beside(&self, task: &TaskRecord) {
        let (nodes, node, id) = (self.nodes().clone(), task.node, task.id);
        self.ports().runtime.spawn("cancel", Box::pin(async move { nodes.cancel(node, id).await }));
    }

    /// What a node says of a task, up to its end. Of what it is doing only the newest counts, every [`PROGRESS_EVERY`].
    async fn follow_updates(
        &self,
        task: &TaskRecord,
        mut updates: BoxStream<'static, Result<TaskUpdate, DispatchError>>,
        progress: &ProgressSink,
    ) -> Result<TaskEnd, DispatchError> {
        let mut newest = None;
        let mut due = self.ports().clock.now();
        loop {
            let update = tokio::select! {
                biased;
                update = updates.next() => update,
                () = self.ports().runtime.sleep_until(due), if newest.is_some() => {
                    progress(newest.take().unwrap_or_default());
                    due = self.ports().clock.now().plus(PROGRESS_EVERY);
                    continue;
                }
            };
            match update {
                Some(Ok(TaskUpdate::Accepted)) => {}
                Some(Ok(TaskUpdate::Progress(said))) => newest = Some(said.text),
                Some(Ok(TaskUpdate::Ended(outcome))) => return Ok(TaskEnd::Outcome(checked(task, outcome))),
                Some(Ok(TaskUpdate::Interrupted)) => return Ok(TaskEnd::Interrupted),
                Some(Err(lost)) => return Err(lost),
                None => return Err(DispatchError::Lost("it ended before the task did".to_owned())),
            }
        }
    }

    /// Ends the rows of tasks that serve no operation and whose answer nobody waits for any more: whoever sent them died or was restored from a
    /// backup. Those of operations are ended by their drivers.
    pub(crate) async fn close_abandoned_tasks(&self) -> Result<(), StoreError> {
        let now = self.ports().clock.now();
        let is_abandoned = |task: &TaskRecord| {
            // Twice: whoever waits for it may be about to write its end.
            task.operation.is_none() && task.expires_at.plus(ANSWER_GRACE * 2) < now
        };
        if !self.store().read().await?.all_open_tasks().await?.iter().any(is_abandoned) {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        for task in tx.all_open_tasks().await?.into_iter().filter(is_abandoned) {
            let message = format!("nobody was left who waited for {}", task.task_type);
            let failure = TaskFailure::new(Code::TaskTimedOut, message);
            self.record_task_end(&mut tx, task, &TaskEnd::Outcome(TaskOutcome::Failed { failure })).await?;
        }
        tx.commit().await
    }

    /// Writes how a task ended, with event and audit record, and returns it as it is now. A task that ended before stays as it was.
    pub(crate) async fn record_task_end(
        &self,
        tx: &mut Tx,
        mut task: TaskRecord,
        end: &TaskEnd,
    ) -> Result<TaskRecord, StoreError> {
        if task.state.is_final() {
            return Ok(task);
        }
        let before = task.state;
        let (state, result) = match end {
            TaskEnd::Interrupted => (TaskState::Interrupted, AuditResult::Failed),
            TaskEnd::Outcome(TaskOutcome::Succeeded { .. }) => (TaskState::Succeeded, AuditResult::Accepted),
            TaskEnd::Outcome(TaskOutcome::Failed { failure }) => match failure.code {
                Code::TaskTimedOut | Code::EnvelopeExpired => (TaskState::Expired, AuditResult::Failed),
                Code::TaskCancelled => (TaskState::Cancelled, AuditResult::Failed),
                Code::TaskInterrupted => (TaskState::Interrupted, AuditResult::Failed),
                _ => (TaskState::Failed, AuditResult::Failed),
            },
        };
        task.state = state;
        task.ended_at = Some(self.ports().clock.now());
        task.outcome = match end {
            TaskEnd::Outcome(outcome) => Some(outcome.clone()),
            TaskEnd::Interrupted => None,
        };
        tx.update_task(&task, before).await?;
        if self.keys().known_ring().is_changing() {
            // Perhaps it was the last one of a key that signs no more. Whoever looks waits for this very change.
            self.key_tending().doubt();
        }
        let node = tx.node(task.node).await?;
        audit_task(tx, &task, node.name.as_str(), AuditAction::TaskComplete, result).await?;
        Ok(task)
    }
}

fn is_of_unknown_key(end: &TaskEnd) -> bool {
    matches!(end, TaskEnd::Outcome(TaskOutcome::Failed { failure }) if failure.code == Code::EnvelopeInvalid)
}

/// The outcome, if a task of its type can have it; what a node says besides is not kept.
fn checked(task: &TaskRecord, outcome: TaskOutcome) -> TaskOutcome {
    outcome.of_task(task.task_type).unwrap_or_else(|why| {
        let message = format!("the node's answer to {} is none: {why}", task.task_type);
        let message = cut(message, TaskFailure::MESSAGE_BYTES_MAX);
        TaskOutcome::Failed { failure: TaskFailure::new(Code::AnswerInvalid, message) }
    })
}

/// Why a task could not even be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepStartError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its parameters could not be rendered.
    #[error("the task could not be rendered: {0}")]
    Render(String),
    /// The node may not be reached for it.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// The node's agent takes none.
    #[error(transparent)]
    TakesNoTasks(#[from] TakesNoTasks),
    /// Its member cannot begin it in its present state.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// The task could not be signed.
    #[error(transparent)]
    Keys(#[from] KeysError),
}

impl From<AccessError> for StepStartError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NotHeld(refused) => Self::NotHeld(refused),
            AccessError::Store(error) => Self::Store(error),
        }
    }
}

impl From<StepStartError> for CommandError {
    fn from(error: StepStartError) -> Self {
        match error {
            StepStartError::Store(error) => error.into(),
            StepStartError::Keys(error) => error.into(),
            StepStartError::NotHeld(refused) => refused.into(),
            StepStartError::TakesNoTasks(refused) => refused.into(),
            StepStartError::Illegal(illegal) => illegal.into(),
            StepStartError::Render(_) => Self::new(Code::Internal, error.to_string()),
        }
    }
}
