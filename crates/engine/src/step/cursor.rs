//! One step within a transaction. Each change of a step's state is a method here, which writes the row and its event together.

use std::time::Duration;

use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    Code, Fault, FaultClass, MemberEvent, NextAction, NodeId, OperationKind, StepState, TaskType, Timestamp,
};
use gpuaas_planner::{App, RecordKind, StepAction, status::FaultChange};
use gpuaas_store::{NodeRecord, OperationRecord, StepRecord, Tx};
use gpuaas_wire::task::TaskFailure;
use serde_json::Value;

use crate::{
    dispatch::{Origin, Outgoing, StepStartError, TaskEnd},
    engine::Engine,
    error::EngineError,
    findings,
    members::{change_member, degrade_member, mark_touched},
    outputs::{OutputError, store_outputs},
    ownership::{self, NodeAccess},
    record::EventScope,
    rows::{OperationRows, unreachable_since},
};

/// Number of interruptions at which a step fails, because an operator must find out why the agent dies. Below it, an interrupted attempt is
/// repeated and does not count against the step's `Retry`: the handler checks first and does only what is missing.
const INTERRUPTIONS_MAX: u32 = 5;

/// A step of an operation whose rows were loaded in the same transaction.
pub(crate) struct StepCursor<'a> {
    engine: &'a Engine,
    tx: &'a mut Tx,
    rows: &'a mut OperationRows,
    at: usize,
}

/// An attempt whose start is recorded.
pub(crate) enum Begun {
    /// Ready to run; a node task comes with its row.
    Run(StepRecord, Option<Box<Outgoing>>),
    /// Ended before it could run.
    Ended(StepRecord, TaskFailure),
}

impl<'a> StepCursor<'a> {
    /// Finds a step of the operation.
    pub(crate) fn find(
        engine: &'a Engine,
        tx: &'a mut Tx,
        rows: &'a mut OperationRows,
        is_it: impl Fn(&StepRecord) -> bool,
    ) -> Option<Self> {
        let at = rows.steps.iter().position(is_it)?;
        Some(Self { engine, tx, rows, at })
    }

    /// The step's present row.
    pub(crate) fn row(&self) -> &StepRecord {
        &self.rows.steps[self.at]
    }

    /// Returns the node on which the step runs a task.
    fn node(&self) -> Option<&NodeRecord> {
        match self.row().spec.action {
            StepAction::NodeTask { node, .. } => self.rows.of.nodes.get(&node),
            StepAction::ClusterCall { .. } | StepAction::Record { .. } => None,
        }
    }

    /// Ends a step that never runs.
    pub(crate) async fn skip(&mut self, now: Timestamp) -> Result<(), EngineError> {
        let step = self.row().clone();
        self.write(StepRecord { state: StepState::Skipped, not_before: None, ended_at: Some(now), ..step }).await
    }

    /// Ends a running step as cancelled. Its attempt must not change a row any more.
    pub(crate) async fn cancel(&mut self) -> Result<(), EngineError> {
        self.end(StepState::Cancelled, None).await
    }

    /// Begins the next attempt: the member's transition, the signed task, and the step itself. An attempt that cannot run fails, and ends
    /// like one that ran.
    pub(crate) async fn begin(&mut self, now: Timestamp) -> Result<Begun, EngineError> {
        let step = self.row().clone();
        let mut begun = StepRecord {
            state: StepState::Running,
            attempts: step.attempts + 1,
            not_before: None,
            detail: None,
            started_at: Some(step.started_at.unwrap_or(now)),
            deadline_at: Some(now.plus(Duration::from_millis(step.spec.deadline_ms))),
            ..step
        };
        let task = match self.start(&begun, now).await {
            Ok(task) => Ok(task.map(Box::new)),
            Err(error) => Err(error.into_failure()?),
        };
        begun.task = task.as_ref().ok().and_then(|outgoing| outgoing.as_ref().map(|outgoing| outgoing.task.id));
        self.write(begun.clone()).await?;
        Ok(match task {
            Ok(task) => Begun::Run(begun, task),
            Err(failure) => Begun::Ended(begun, failure),
        })
    }

    /// Records how the present attempt ended, and what follows for step, member, operation and workload.
    pub(crate) async fn settle(&mut self, end: &TaskEnd) -> Result<(), EngineError> {
        if let Some(task) = self.row().task {
            let task = self.tx.task(task).await?;
            self.engine.record_task_end(self.tx, task.clone(), end).await?;
            if let (TaskType::Preflight, TaskEnd::Succeeded(result)) = (task.task_type, end) {
                let now = self.now();
                findings::store_of_step(self.tx, self.rows, now, (&task, result)).await?;
            }
        }
        match end {
            TaskEnd::Succeeded(_) if bugs::on(Bug::SuccessRepeated) && self.row().attempts == 2 => {
                self.retry_now().await
            }
            TaskEnd::Interrupted if bugs::on(Bug::InterruptedIsDone) => self.succeed().await,
            TaskEnd::Failed(failure) if bugs::on(Bug::DrainFailureIgnored) && failure.code == Code::DrainBlocked => {
                self.succeed().await
            }
            TaskEnd::Succeeded(result) => {
                let spec = self.row().spec.clone();
                match store_outputs(self.engine, self.tx, self.rows, &spec, result).await {
                    Ok(()) => self.succeed().await,
                    Err(OutputError::Refused(fault)) => self.fail_or_retry(*fault).await,
                    Err(OutputError::Engine(error)) => Err(error),
                }
            }
            TaskEnd::Failed(failure) if failure.code == Code::TaskCancelled && self.rows.operation.cancel_requested => {
                self.end(StepState::Cancelled, None).await
            }
            TaskEnd::Failed(failure) => self.fail_or_retry(self.diagnose(failure)?).await,
            TaskEnd::Interrupted => self.retry_now().await,
        }
    }

    async fn succeed(&mut self) -> Result<(), EngineError> {
        let (ends, now) = (self.row().spec.on_success.clone(), self.now());
        if let StepAction::Record { record: RecordKind::GiveUp } = self.row().spec.action
            && let Some(member) = self.row().spec.member
        {
            findings::mark_unproven(self.tx, self.rows, member, now).await?;
        }
        match self.change_member(ends, now).await {
            Ok(()) => self.end(StepState::Succeeded, None).await,
            Err(EngineError::Illegal(illegal)) => {
                let failure = TaskFailure::new(Code::IllegalTransition, illegal.to_string());
                self.fail_or_retry(self.diagnose(&failure)?).await
            }
            Err(error) => Err(error),
        }
    }

    /// Retries the step if the fault is retryable and attempts remain. Otherwise the step fails, and with it its member, unless the step
    /// spares it. `schedule` then decides by the step's scope whether the operation continues.
    async fn fail_or_retry(&mut self, fault: Fault) -> Result<(), EngineError> {
        let (now, step) = (self.now(), self.row());
        // The failed attempts, the present one included.
        let failed = step.attempts - step.interruptions;
        // A step that spares its member does not wait for an unreachable node: when the node returns, it is looked at anyway.
        let is_lost = step.spec.spares_member && self.node().is_some_and(|node| unreachable_since(node).is_some());
        let again = fault.class == FaultClass::Retryable
            && !is_lost
            && (failed < step.spec.retry.attempts_max || bugs::on(Bug::RetriesUnbounded))
            && !self.rows.operation.cancel_requested;
        if again {
            let wait = step.spec.retry.wait_after(failed, self.engine.ports().entropy.below(1_000));
            return self.back_off(now.plus(wait), Some(fault)).await;
        }
        let scope = step.spec.scope.clone();
        let event = (!step.spec.spares_member).then(|| MemberEvent::Fail { fault: fault.clone() });
        if let Some(member) =
            step.spec.member.filter(|_| step.spec.spares_member && fault.class == FaultClass::Repairable)
        {
            degrade_member(self.tx, self.rows, member, &fault).await?;
        }
        match self.change_member(event, now).await {
            // A removed member cannot fail and stays as it is; the step fails nevertheless.
            Ok(()) | Err(EngineError::Illegal(_)) => {}
            Err(error) => return Err(error),
        }
        let operation = &mut self.rows.operation;
        operation.fault.get_or_insert_with(|| fault.clone());
        self.tx.update_operation(operation, operation.state).await?;
        self.end(StepState::Failed, Some(fault.clone())).await?;
        self.rows.change_fault(FaultChange::StepFailed { scope, fault });
        Ok(())
    }

    /// Runs an interrupted step again at once, because its handler is idempotent and does only what is missing. Fails a step that only a
    /// person may repeat, and one that was interrupted too often.
    async fn retry_now(&mut self) -> Result<(), EngineError> {
        let now = self.now();
        let step = &mut self.rows.steps[self.at];
        step.interruptions += 1;
        if step.spec.retry.is_never() || step.interruptions >= INTERRUPTIONS_MAX {
            let times = if step.interruptions == 1 { "" } else { "repeatedly " };
            let summary = format!("the node's agent died {times}during this task");
            let (cause, workload) = ("find out why the agent dies", &self.rows.of.workload.name);
            let next = match self.node() {
                Some(node) => NextAction::ask_operator(cause, &node.name, workload),
                None => NextAction::then_resume(cause, workload),
            };
            let code = Code::TaskInterrupted.to_string();
            return self.fail_or_retry(Fault { code, class: FaultClass::Manual, summary, evidence: None, next }).await;
        }
        self.back_off(now, None).await
    }

    async fn back_off(&mut self, not_before: Timestamp, fault: Option<Fault>) -> Result<(), EngineError> {
        let step = self.row().clone();
        let detail = fault.as_ref().map(|fault| fault.summary.clone());
        let not_before = Some(not_before);
        self.write(StepRecord { state: StepState::Backoff, not_before, detail, fault, ..step }).await
    }

    async fn end(&mut self, state: StepState, fault: Option<Fault>) -> Result<(), EngineError> {
        let (step, ended_at) = (self.row().clone(), Some(self.now()));
        self.write(StepRecord { state, ended_at, fault, ..step }).await
    }

    /// Replaces the step's row, with its event. No other code changes the state of a step.
    async fn write(&mut self, next: StepRecord) -> Result<(), EngineError> {
        let step = &mut self.rows.steps[self.at];
        let before = (step.state, step.attempts);
        *step = next;
        self.tx.update_step(step, before).await?;
        Ok(EventScope::of(&self.rows.operation).step(self.tx, step, self.rows.operation.workload).await?)
    }

    /// Applies an event to the step's member, if it has both.
    async fn change_member(&mut self, event: Option<MemberEvent>, now: Timestamp) -> Result<(), EngineError> {
        match (event, self.row().spec.member) {
            (Some(event), Some(member)) => change_member(self.tx, self.rows, member, event, now).await,
            (Some(_) | None, None) | (None, Some(_)) => Ok(()),
        }
    }

    /// Prepares the attempt `begun`: moves the member and records the task of a node-task step; `None` for other kinds.
    async fn start(&mut self, begun: &StepRecord, now: Timestamp) -> Result<Option<Outgoing>, StepStartError> {
        // Only the first attempt moves the member; later ones find it in that state.
        let begins = begun.spec.on_first_start.clone().filter(|_| begun.attempts == 1);
        self.change_member(begins, now).await?;
        mark_touched(self.tx, self.rows, &begun.spec).await?;
        let StepAction::NodeTask { node, task } = &begun.spec.action else { return Ok(None) };
        let access = self.decide_access(begun, *node).await?;
        let app = self.app()?;
        let params = app.render(&begun.spec, &self.rows.operation.request(), &self.rows.of.view());
        let params = params.map_err(|error| StepStartError::Render(error.to_string()))?;
        let oldest = app.manifest().tasks.iter().find(|(known, _)| known == task).map_or(1, |(_, schema)| *schema);
        let origin = Origin {
            step: Some((self.rows.operation.id, begun.id)),
            attempt: begun.attempts,
            correlation: self.rows.operation.correlation,
        };
        let expires_at = begun.deadline_at.unwrap_or(now);
        self.engine.record_task(self.tx, access, origin, (*task, oldest), params, expires_at).await.map(Some)
    }

    /// Decides access to the node of the step's member. Refuses any other node.
    async fn decide_access(&mut self, step: &StepRecord, node: NodeId) -> Result<NodeAccess, StepStartError> {
        let of = &self.rows.of;
        let member = of.members.iter().find(|member| Some(member.id) == step.spec.member);
        let placed = member.and_then(|member| Some((member, member.place.allocation()?, of.nodes.get(&node)?)));
        let Some((member, allocation, node)) = placed else {
            return Err(StepStartError::Render(format!("step {} names a node that has no member", step.spec.key)));
        };
        let allocation = self.tx.allocation(allocation).await?;
        Ok(ownership::decide(member, &of.workload, &allocation, node)?)
    }

    /// Names the fault of a failure. A repair advises no repair that it includes.
    fn diagnose(&self, failure: &TaskFailure) -> Result<Fault, EngineError> {
        let fault = self.app()?.diagnose(&self.row().spec, failure, &self.rows.of.view());
        let OperationRecord { kind, parameters, .. } = &self.rows.operation;
        let parameter = |name: &str| parameters.get(name).and_then(Value::as_str);
        let (workload, scope, member) = (&self.rows.of.workload.name, parameter("scope"), parameter("member"));
        let is_done = *kind == OperationKind::Repair && fault.next.is_within_repair(workload, scope, member);
        Ok(if is_done { fault.after_repair() } else { fault })
    }

    fn app(&self) -> Result<&'a dyn App, EngineError> {
        Ok(&*self.engine.catalog().require(&self.rows.of.workload.app)?.app)
    }

    fn now(&self) -> Timestamp {
        self.engine.ports().clock.now()
    }
}
