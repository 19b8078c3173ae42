//! The path of one task to a node and back: sign, record, push, follow.
//!
//! The row with the whole envelope is written before the push, so that after a crash the same envelope is sent again and the node's ledger
//! decides its result. The caller records the outcome, in the transaction that applies it.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use gpuaas_model::{
    AuditAction, AuditResult, Code, CorrelationId, EnrolledNode, OperationId, StepId, TaskId, TaskState, TaskType,
    Timestamp,
};
use gpuaas_store::{StoreError, TaskRecord, Tx};
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{
    bounds::one_line,
    session::TaskLine,
    task::{TaskFailure, TaskOutcome},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    effects::ProgressSink,
    engine::Engine,
    error::{CommandError, EngineError},
    keys::KeysError,
    ownership::{self, AccessError, NodeAccess, NotHeld, TakesNoTasks},
    port::DispatchError,
    record::audit_task,
};

/// How long a node's lease lasts. Every task signed under it renews it.
const NODE_LEASE_TTL: Duration = Duration::from_secs(15);
/// Time that a node still has, after a task's deadline, to report the result with its evidence.
pub(crate) const RESULT_GRACE: Duration = Duration::from_secs(5);

/// Delay before a task is sent again after its channel broke, unless the node connects earlier.
const LOST_RETRY: Duration = Duration::from_secs(2);

/// Minimum interval of a task's progress updates, because each one changes rows.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// The purpose of a task.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The operation and its step; `None` for a task outside of operations.
    pub(crate) step: Option<(OperationId, StepId)>,
    pub(crate) attempt: u32,
    pub(crate) correlation: CorrelationId,
}

impl Origin {
    /// A task outside of operations.
    pub(crate) fn standalone(correlation: CorrelationId) -> Self {
        Self { step: None, attempt: 1, correlation }
    }
}

/// A recorded task on its way to its node.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) task: TaskRecord,
    /// The access under which the task was signed; `None` if another process signed it, or this one earlier: access is then decided again.
    access: Option<NodeAccess>,
}

impl Outgoing {
    /// Resumes a task that was signed earlier.
    pub(crate) fn resumed(task: TaskRecord) -> Self {
        Self { task, access: None }
    }
}

/// The end of a task, of a cluster call or of a change of records: what was answered, or why no answer is awaited any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskEnd {
    /// Succeeded, with its result.
    Succeeded(Value),
    /// Failed, with its failure.
    Failed(TaskFailure),
    /// The agent died during the task, so its progress is unknown. The next attempt checks first.
    Interrupted,
}

impl TaskEnd {
    /// A failure that the control plane itself decides.
    pub(crate) fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed(TaskFailure::new(code, message))
    }

    /// The outcome for the task's row; an interrupted task has none.
    fn outcome(&self) -> Option<TaskOutcome> {
        match self {
            Self::Succeeded(result) => Some(TaskOutcome::Succeeded { result: result.clone() }),
            Self::Failed(failure) => Some(TaskOutcome::Failed { failure: failure.clone() }),
            Self::Interrupted => None,
        }
    }
}

impl From<TaskOutcome> for TaskEnd {
    fn from(outcome: TaskOutcome) -> Self {
        match outcome {
            TaskOutcome::Succeeded { result } => Self::Succeeded(result),
            TaskOutcome::Failed { failure } => Self::Failed(failure),
        }
    }
}

impl Engine {
    /// Signs a task and writes its row, its event and its audit record. The caller sends the task after its commit. `params` have the
    /// newest version's shape; they are converted to the newest version, not older than `oldest`, that the node's agent supports.
    pub(crate) async fn record_task(
        &self,
        tx: &mut Tx,
        access: NodeAccess,
        origin: Origin,
        (task_type, oldest): (TaskType, u32),
        params: Value,
        expires_at: Timestamp,
    ) -> Result<Outgoing, StepStartError> {
        access.check_takes_tasks()?;
        if task_type.is_for_workload() && access.workload().is_none() {
            return Err(StepStartError::Render(format!("{task_type} can be signed only for a workload")));
        }
        let definition = self.catalog().task(task_type);
        let definition = definition.ok_or_else(|| StepStartError::Render(undefined(task_type)))?;
        let now = self.ports().clock.now();
        let (EnrolledNode { node, epoch }, workload) = (access.node(), access.workload());
        let (project, allocation) = access.holding().map(|holding| (holding.project, holding.allocation)).unzip();
        let (operation, step) = origin.step.unzip();
        // Live replicas sign under one fence. It grows when its holder dies, which voids everything that the dead replica may still send.
        let fence = tx.shared_fence(&format!("node/{node}"), self.replica(), NODE_LEASE_TTL).await?;
        let id = TaskId::generate(&*self.ports().clock, &*self.ports().entropy);
        let (schema, params) = definition.params_for_agent(oldest, params, access.support());
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

    /// Pushes a recorded task and follows it to its end, across as many channels as needed.
    ///
    /// Ends shortly after the task's expiry: with the node's answer if there is one, otherwise as timed out. A cancellation reaches the
    /// node at once, and again with the task if the node was away or did not have the task yet.
    pub(crate) async fn follow_task(
        &self,
        outgoing: Outgoing,
        progress: &ProgressSink,
        cancelled: &CancellationToken,
    ) -> TaskEnd {
        let Outgoing { task, access } = outgoing;
        let give_up = self.ports().runtime.sleep_until(task.expires_at.plus(RESULT_GRACE));
        let (id, kind, node, correlation) = (task.id, task.task_type, task.node, task.correlation);
        let span = tracing::info_span!("task", task = %id, kind = %kind, %node, %correlation);
        tokio::select! {
            biased;
            end = self.follow_until_end(&task, access, progress, cancelled).instrument(span) => end,
            () = give_up => {
                self.nodes().cancel(task.node, task.id).await;
                TaskEnd::failed(Code::TaskTimedOut, format!("{} did not end by its deadline", task.task_type))
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
        // A node that may lack the signing key is asked again. If it had the key before it was asked, its refusal is final.
        let mut may_lack_keys = true;
        loop {
            // Taken before the push, so that a connection made while the push fails is not missed.
            let connection = self.next_connection();
            let dispatched = match self.current_access(task, access.take()).await {
                Ok(access) => match access.check_takes_tasks() {
                    Ok(()) => self.nodes().dispatch(&access, &task.envelope).await,
                    // The task's fate on the node is unknown, so it is not sent again.
                    Err(refused) => return TaskEnd::failed(refused.code, refused.to_string()),
                },
                Err(AccessError::NotHeld(why)) => return TaskEnd::failed(Code::NodeNotAllocated, why.to_string()),
                Err(AccessError::Store(error)) => Err(DispatchError::Lost(error.to_string())),
            };
            if dispatched.is_ok() && cancelled.is_cancelled() {
                self.cancel_in_background(task);
            }
            let lost = match dispatched {
                Ok(updates) => match self.follow_updates(task, updates, progress).await {
                    // A node that connects during a key rotation, or that is slow, receives the keys later.
                    Ok(end) if is_unknown_key(&end) && may_lack_keys => {
                        may_lack_keys = self.may_lack_keys(task.node).await;
                        self.key_rotation().mark_dirty();
                        DispatchError::Lost("the node does not know the key that signed the task".to_owned())
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
                // Possibly only the path to the node broke, and no new connection will wake this loop.
                DispatchError::Lost(_) => tokio::select! {
                    biased;
                    () = connection => {}
                    () = self.ports().runtime.sleep_until(self.ports().clock.now().plus(LOST_RETRY)) => {}
                },
            }
        }
    }

    /// The access of a task about to be pushed: the one it was signed under, otherwise decided now. Fails if the database went back.
    async fn current_access(&self, task: &TaskRecord, signed: Option<NodeAccess>) -> Result<NodeAccess, AccessError> {
        self.store().check_history()?;
        match signed {
            Some(access) => Ok(access),
            None => ownership::for_task(&mut self.store().read().await?, task).await,
        }
    }

    /// Sends the node a cancellation without waiting for its answer.
    fn cancel_in_background(&self, task: &TaskRecord) {
        let (nodes, node, id) = (self.nodes().clone(), task.node, task.id);
        self.ports().runtime.spawn("cancel", Box::pin(async move { nodes.cancel(node, id).await }));
    }

    /// Follows a node's updates of a task to its end. Passes on only the newest progress, every [`PROGRESS_EVERY`].
    async fn follow_updates(
        &self,
        task: &TaskRecord,
        mut updates: BoxStream<'static, Result<TaskLine, DispatchError>>,
        progress: &ProgressSink,
    ) -> Result<TaskEnd, DispatchError> {
        let mut newest = None;
        let mut next_at = self.ports().clock.now();
        loop {
            let update = tokio::select! {
                biased;
                update = updates.next() => update,
                () = self.ports().runtime.sleep_until(next_at), if newest.is_some() => {
                    progress(newest.take().unwrap_or_default());
                    next_at = self.ports().clock.now().plus(PROGRESS_EVERY);
                    continue;
                }
            };
            match update {
                Some(Ok(TaskLine::Accepted)) => {}
                Some(Ok(TaskLine::Progress(report))) => newest = Some(report.text),
                Some(Ok(TaskLine::Ended(outcome))) => return Ok(self.validated_outcome(task, outcome).into()),
                Some(Ok(TaskLine::Interrupted)) => return Ok(TaskEnd::Interrupted),
                Some(Err(lost)) => return Err(lost),
                None => return Err(DispatchError::Lost("the stream ended before the task".to_owned())),
            }
        }
    }

    /// Returns the outcome if it is valid for the task's type, otherwise a failure; an invalid answer is not kept.
    fn validated_outcome(&self, task: &TaskRecord, outcome: TaskOutcome) -> TaskOutcome {
        let definition = self.catalog().task(task.task_type).ok_or_else(|| undefined(task.task_type));
        definition.and_then(|definition| outcome.checked_for(definition)).unwrap_or_else(|why| {
            let message = format!("the node's result of {} is invalid: {why}", task.task_type);
            let message = one_line(message, TaskFailure::MESSAGE_BYTES_MAX);
            TaskOutcome::Failed { failure: TaskFailure::new(Code::TaskResultInvalid, message) }
        })
    }

    /// Closes tasks outside of operations for which no process waits any more, because the sender died or the database was restored from a
    /// backup. Drivers close the tasks of operations.
    pub(crate) async fn close_abandoned_tasks(&self) -> Result<(), EngineError> {
        let now = self.ports().clock.now();
        let is_abandoned = |task: &TaskRecord| {
            // Twice the grace, because a waiting process may be about to write the end.
            task.operation.is_none() && task.expires_at.plus(RESULT_GRACE * 2) < now
        };
        if !self.store().read().await?.all_open_tasks().await?.iter().any(is_abandoned) {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        for task in tx.all_open_tasks().await?.into_iter().filter(is_abandoned) {
            let message = format!("no process waits for the result of {} any more", task.task_type);
            self.record_task_end(&mut tx, task, &TaskEnd::failed(Code::TaskTimedOut, message)).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Writes how a task ended, with event and audit record, and returns its present row. A task that ended before stays unchanged.
    pub(crate) async fn record_task_end(
        &self,
        tx: &mut Tx,
        mut task: TaskRecord,
        end: &TaskEnd,
    ) -> Result<TaskRecord, EngineError> {
        if task.state.is_final() {
            return Ok(task);
        }
        let before = task.state;
        let (state, result) = match end {
            TaskEnd::Interrupted => (TaskState::Interrupted, AuditResult::Failed),
            TaskEnd::Succeeded(_) => (TaskState::Succeeded, AuditResult::Succeeded),
            TaskEnd::Failed(failure) => match failure.code {
                Code::TaskTimedOut | Code::EnvelopeExpired => (TaskState::Expired, AuditResult::Failed),
                Code::TaskCancelled => (TaskState::Cancelled, AuditResult::Failed),
                Code::TaskInterrupted => (TaskState::Interrupted, AuditResult::Failed),
                _ => (TaskState::Failed, AuditResult::Failed),
            },
        };
        task.state = state;
        task.ended_at = Some(self.ports().clock.now());
        task.outcome = end.outcome();
        tx.update_task(&task, before).await?;
        if self.keys().known_ring().is_changing() {
            // This may have been the last task of a key that no longer signs. The key rotation waits for this change.
            self.key_rotation().mark_dirty();
        }
        let node = tx.node(task.node).await?;
        audit_task(tx, &task, node.name.as_str(), AuditAction::TaskComplete, result).await?;
        Ok(task)
    }
}

fn is_unknown_key(end: &TaskEnd) -> bool {
    matches!(end, TaskEnd::Failed(failure) if failure.code == Code::EnvelopeInvalid)
}

fn undefined(task: TaskType) -> String {
    format!("no app of this control plane defines the task {task}")
}

/// The reasons for which a task could not be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepStartError {
    /// The engine failed, or the member's present state does not allow the task.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The task's parameters could not be rendered.
    #[error("the task could not be rendered: {0}")]
    Render(String),
    /// The node may not be accessed for the task.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),
    /// The node's agent takes no tasks.
    #[error(transparent)]
    TakesNoTasks(#[from] TakesNoTasks),
    /// The task could not be signed.
    #[error(transparent)]
    Keys(#[from] KeysError),
}

impl StepStartError {
    /// Returns the failure of an attempt that cannot run, unless it is not known whether it can.
    pub(crate) fn into_failure(self) -> Result<TaskFailure, EngineError> {
        let code = match self {
            Self::Keys(KeysError::Store(error)) => return Err(error.into()),
            Self::Engine(EngineError::Illegal(_)) => Code::IllegalTransition,
            Self::Engine(error) => return Err(error),
            Self::TakesNoTasks(ref refused) => refused.code,
            Self::NotHeld(_) => Code::NodeNotAllocated,
            Self::Keys(_) | Self::Render(_) => Code::Internal,
        };
        Ok(TaskFailure::new(code, self.to_string()))
    }
}

impl From<StoreError> for StepStartError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<AccessError> for StepStartError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::NotHeld(refused) => Self::NotHeld(refused),
            AccessError::Store(error) => error.into(),
        }
    }
}

impl From<StepStartError> for CommandError {
    fn from(error: StepStartError) -> Self {
        match error {
            StepStartError::Engine(error) => error.into(),
            StepStartError::Keys(error) => error.into(),
            StepStartError::NotHeld(refused) => refused.into(),
            StepStartError::TakesNoTasks(refused) => refused.into(),
            StepStartError::Render(_) => Self::new(Code::Internal, error.to_string()),
        }
    }
}
