//! Begins attempts: one transaction records that they are about to run, with the signed envelope of each node task; they run only after its
//! commit.

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture, stream};
use gpuaas_model::{
    Code, EventKind, IllegalTransition, Lifecycle, MemberId, NodeId, OperationState, StepId, StepState, TaskId,
    Timestamp,
};
use gpuaas_planner::{App, Schedule, StepAction};
use gpuaas_store::{LeaseRecord, MemberRecord, StepRecord, StoreError, Tx};
use gpuaas_wire::{bounds::one_line, task::TaskFailure};

use sync_wrapper::SyncFuture;

use crate::{
    dispatch::{Origin, Outgoing, StepStartError},
    driver::{Driver, EndedAttempt, OPERATION_LEASE},
    keys::KeysError,
    ownership::{self, NodeAccess},
    port::Nodes,
    record::EventScope,
    rows::OperationRows,
    step::{AttemptEnd, continue_node_task},
};

/// Maximum length of a progress text kept as a step's detail, in bytes.
const DETAIL_BYTES_MAX: usize = 512;
/// Maximum number of concurrent cancellation requests to nodes.
const CONCURRENT_CANCELLATIONS_MAX: usize = 32;

/// An attempt whose start is recorded.
enum Begun {
    /// Ready to run; a node task comes with its row.
    Run(StepRecord, Option<Box<Outgoing>>),
    /// Ended before it could run.
    Ended(StepRecord, TaskFailure),
}

impl Driver {
    /// Skips and begins the steps that the schedule names, in one transaction, then runs the begun attempts.
    pub(crate) async fn begin(&mut self, lease: &LeaseRecord, next: &Schedule) -> Result<(), StoreError> {
        let mut tx = self.engine.store().begin().await?;
        self.check_lease(&mut tx, lease).await?;
        let mut rows = OperationRows::load(&mut tx, self.id).await?;
        let events = EventScope::of(&rows.operation);
        let now = self.engine.ports().clock.now();
        if rows.operation.state == OperationState::Queued {
            rows.operation.started_at = Some(now);
        }
        let before = rows.operation.state;
        rows.operation.state = OperationState::Running;
        tx.update_operation(&rows.operation, before).await?;
        if before == OperationState::Queued {
            events.operation(&mut tx, EventKind::OperationStarted, &rows.operation).await?;
        }
        for key in &next.skip {
            let Some(at) = rows.steps.iter().position(|step| &step.spec.key == key) else { continue };
            skip_step(&mut tx, &events, &mut rows.steps[at], now).await?;
        }
        let mut begun = Vec::new();
        for key in &next.run {
            let Some(at) = rows.steps.iter().position(|step| &step.spec.key == key) else { continue };
            begun.push(self.begin_step(&mut tx, &events, &mut rows, at, now).await?);
        }
        self.write_status(&mut tx, &events, &mut rows).await?;
        tx.commit().await?;
        for attempt in begun {
            let future: BoxFuture<'static, EndedAttempt> = match attempt {
                Begun::Run(step, task) => {
                    self.in_flight.insert(step.id);
                    self.attempt(&rows, &step, task.map(|task| *task))
                }
                Begun::Ended(step, failure) => {
                    self.in_flight.insert(step.id);
                    Box::pin(async move { (step.id, step.attempts, AttemptEnd::Failed(failure)) })
                }
            };
            self.attempts.push(SyncFuture::new(future));
        }
        Ok(())
    }

    async fn begin_step(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
        now: Timestamp,
    ) -> Result<Begun, StoreError> {
        let before = (rows.steps[at].state, rows.steps[at].attempts);
        {
            let step = &mut rows.steps[at];
            step.state = StepState::Running;
            step.attempts += 1;
            step.not_before = None;
            step.detail = None;
            step.started_at.get_or_insert(now);
            step.deadline_at = Some(now.plus(std::time::Duration::from_millis(step.spec.deadline_ms)));
        }
        let member = rows.steps[at].spec.member;
        let is_first = rows.steps[at].attempts == 1;
        let begun = match (rows.steps[at].spec.begins.clone().filter(|_| is_first), member) {
            (Some(event), Some(member)) => change_member(tx, events, rows, member, event, now).await?,
            // Only the first attempt moves the member; later ones find it in that state.
            (Some(_) | None, None) | (None, Some(_)) => Ok(()),
        };
        let recorded = match begun {
            Ok(()) => {
                mark_touched(tx, rows, at).await?;
                self.record_node_task(tx, rows, at).await
            }
            Err(illegal) => Err(StepStartError::Illegal(illegal)),
        };
        let task = match recorded {
            Ok(task) => Ok(task),
            Err(StepStartError::Store(error)) => return Err(error),
            Err(StepStartError::Keys(KeysError::Store(error))) => return Err(error),
            Err(StepStartError::Illegal(illegal)) => {
                Err(TaskFailure::new(Code::IllegalTransition, illegal.to_string()))
            }
            Err(StepStartError::TakesNoTasks(refused)) => Err(TaskFailure::new(refused.code, refused.to_string())),
            Err(StepStartError::NotHeld(refused)) => Err(TaskFailure::new(Code::NodeNotAllocated, refused.to_string())),
            Err(error @ (StepStartError::Keys(_) | StepStartError::Render(_))) => {
                Err(TaskFailure::new(Code::Internal, error.to_string()))
            }
        };
        let step = &mut rows.steps[at];
        step.task = task.as_ref().ok().and_then(|outgoing| outgoing.as_ref().map(|outgoing| outgoing.task.id));
        tx.update_step(step, before).await?;
        events.step(tx, step).await?;
        Ok(match task {
            Ok(task) => Begun::Run(step.clone(), task.map(Box::new)),
            Err(failure) => Begun::Ended(step.clone(), failure),
        })
    }

    /// Renders, signs and records the task of a node-task step; `None` for other kinds.
    async fn record_node_task(
        &self,
        tx: &mut Tx,
        rows: &OperationRows,
        at: usize,
    ) -> Result<Option<Outgoing>, StepStartError> {
        let step = &rows.steps[at];
        let StepAction::NodeTask { node, task } = &step.spec.action else { return Ok(None) };
        let access = self.decide_access(tx, rows, step, *node).await?;
        let app = self.app(rows)?;
        let params =
            app.render(&step.spec, &rows.of.view()).map_err(|error| StepStartError::Render(error.to_string()))?;
        let oldest = app.manifest().tasks.iter().find(|(known, _)| known == task).map_or(1, |(_, schema)| *schema);
        let origin = Origin {
            step: Some((rows.operation.id, step.id)),
            attempt: step.attempts,
            correlation: rows.operation.correlation,
        };
        let expires_at = step.deadline_at.unwrap_or_else(|| self.engine.ports().clock.now());
        self.engine.record_task(tx, access, origin, (*task, oldest), params, expires_at).await.map(Some)
    }

    /// Decides access to the node of the step's member. Refuses any other node.
    async fn decide_access(
        &self,
        tx: &mut Tx,
        rows: &OperationRows,
        step: &StepRecord,
        node: NodeId,
    ) -> Result<NodeAccess, StepStartError> {
        let member = rows.of.members.iter().find(|member| Some(member.id) == step.spec.member);
        let placed = member.and_then(|member| Some((member, rows.of.nodes.get(&node)?)));
        let Some((member, node)) = placed else {
            return Err(StepStartError::Render(format!("step {} names a node that has no member", step.spec.key)));
        };
        let allocation = tx.allocation(member.allocation).await?;
        Ok(ownership::decide(member, &rows.of.workload, &allocation, node)?)
    }

    /// Continues an attempt that an earlier driver began.
    pub(crate) async fn continue_attempt(&mut self, rows: &OperationRows, step: StepRecord) -> Result<(), StoreError> {
        tracing::info!(operation = %self.id, step = %step.spec.key, "continuing an attempt that another driver began");
        let task = continue_node_task(&self.engine, &step).await?;
        self.in_flight.insert(step.id);
        self.attempts.push(SyncFuture::new(self.attempt(rows, &step, task)));
        Ok(())
    }

    /// Asks every running node task to end.
    pub(crate) fn cancel_running(&self, rows: &OperationRows) -> BoxFuture<'static, ()> {
        let task_of = |step: &StepRecord| match (&step.spec.action, step.task) {
            (StepAction::NodeTask { node, .. }, Some(task)) => Some((*node, task)),
            _ => None,
        };
        Box::pin(cancel(self.engine.nodes().clone(), rows.running().filter_map(task_of).collect()))
    }

    /// Fails if another holder took the lease; this driver's writes are void then.
    pub(crate) async fn check_lease(&self, tx: &mut Tx, lease: &LeaseRecord) -> Result<(), StoreError> {
        if tx.holds_lease(&self.lease_name(), self.engine.replica(), lease.fence).await? {
            Ok(())
        } else {
            Err(StoreError::Stale { what: OPERATION_LEASE })
        }
    }

    /// Updates the workload's status, with an event if it changed. Deletes the secrets of a decommissioned workload.
    pub(crate) async fn write_status(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
    ) -> Result<(), StoreError> {
        let stored = tx.workload(rows.of.workload.id).await?;
        rows.refresh_status();
        if stored != rows.of.workload {
            rows.of.workload = tx.update_workload(&rows.of.workload).await?;
            events.workload(tx, EventKind::WorkloadChanged, &rows.of.workload).await?;
            if rows.of.workload.lifecycle == Lifecycle::Decommissioned {
                // The cluster that these secrets opened no longer exists.
                tx.delete_secrets_of(rows.of.workload.id).await?;
            }
        }
        Ok(())
    }

    /// Returns a sink for the progress texts of one step. It never makes the attempt wait.
    pub(crate) fn progress_sink(&self, step: StepId) -> crate::effects::ProgressSink {
        let progress = self.progress_in.clone();
        Arc::new(move |text| {
            // If the queue is full, this text is dropped; earlier ones wait to be recorded.
            let _ = progress.try_send((step, text));
        })
    }

    /// Stores a progress text as the step's detail.
    pub(crate) async fn record_progress(&self, step: StepId, text: String) {
        if let Err(error) = self.write_progress(step, &one_line(text, DETAIL_BYTES_MAX)).await {
            tracing::debug!(%step, %error, "a progress text could not be recorded");
        }
    }

    async fn write_progress(&self, step: StepId, text: &str) -> Result<(), StoreError> {
        let mut tx = self.engine.store().begin().await?;
        let mut row = tx.step(step).await?;
        if row.state != StepState::Running || row.detail.as_deref() == Some(text) {
            return Ok(());
        }
        row.detail = Some(text.to_owned());
        let operation = tx.operation(self.id).await?;
        tx.update_step(&row, (row.state, row.attempts)).await?;
        EventScope::of(&operation).step(&mut tx, &row).await?;
        tx.commit().await
    }

    pub(crate) fn app(&self, rows: &OperationRows) -> Result<&dyn App, StoreError> {
        let slug = &rows.of.workload.app;
        let entry = self.engine.catalog().app(slug);
        entry.map(|entry| &*entry.app).ok_or_else(|| StoreError::NotFound { what: "app", id: slug.clone() })
    }
}

/// Sends cancellations, [`CONCURRENT_CANCELLATIONS_MAX`] at a time, so that a node that does not answer delays few others.
async fn cancel(nodes: Arc<dyn Nodes>, tasks: Vec<(NodeId, TaskId)>) {
    let all_sent = stream::iter(tasks).for_each_concurrent(CONCURRENT_CANCELLATIONS_MAX, |(node, task)| {
        let nodes = nodes.clone();
        async move { nodes.cancel(node, task).await }
    });
    all_sent.await;
}

/// Applies an event to a member and records it. An illegal transition leaves the member unchanged; the caller fails the step.
pub(crate) async fn change_member(
    tx: &mut Tx,
    events: &EventScope,
    rows: &mut OperationRows,
    id: MemberId,
    event: gpuaas_model::MemberEvent,
    now: Timestamp,
) -> Result<Result<(), IllegalTransition>, StoreError> {
    let operation = rows.operation.id;
    let Some(member) = rows.of.members.iter_mut().find(|member| member.id == id) else { return Ok(Ok(())) };
    match member.state.on(event, now) {
        Ok(state) => {
            let before = member.state.name();
            member.state = state;
            member.last_operation = Some(operation);
            set_health_from_state(member);
            *member = tx.update_member(member, before).await?;
            events.member(tx, member).await?;
            Ok(Ok(()))
        }
        Err(illegal) => {
            tracing::warn!(member = %id, %illegal, "a plan requested an illegal transition");
            Ok(Err(illegal))
        }
    }
}

/// Sets a member's health from its state alone; later reports of its unit may change it.
fn set_health_from_state(member: &mut MemberRecord) {
    use gpuaas_model::{Health, MemberState as S};
    member.health = match member.state {
        S::Pending | S::Preparing { .. } | S::Bootstrapping { .. } | S::Joining { .. } => Health::Progressing,
        S::Ready { .. } | S::Stopped { .. } | S::Drained { .. } => Health::Healthy,
        S::Removed => Health::None,
        S::Draining { .. } | S::Removing { .. } => Health::Progressing,
        S::Failed { .. } => Health::Failed,
    };
    if member.health != Health::Failed {
        member.fault = None;
    }
}

/// Marks a member as touched before the first task that may leave something on its node: anything found there from now on belongs to the
/// member.
async fn mark_touched(tx: &mut Tx, rows: &mut OperationRows, at: usize) -> Result<(), StoreError> {
    let spec = &rows.steps[at].spec;
    let changes = matches!(&spec.action, StepAction::NodeTask { task, .. } if task.changes_host());
    let member = rows.of.members.iter_mut().find(|member| Some(member.id) == spec.member);
    if let Some(member) = member.filter(|member| changes && !member.touched) {
        member.touched = true;
        *member = tx.update_member(member, member.state.name()).await?;
    }
    Ok(())
}

async fn skip_step(tx: &mut Tx, events: &EventScope, step: &mut StepRecord, now: Timestamp) -> Result<(), StoreError> {
    let before = (step.state, step.attempts);
    step.state = StepState::Skipped;
    step.not_before = None;
    step.ended_at = Some(now);
    tx.update_step(step, before).await?;
    events.step(tx, step).await
}
