//! Records the result of an attempt in one transaction: the task's end, values from the result, the new states of member, step and
//! workload, events and audit records. Also ends the operation.

use gpuaas_crash_points::Point;
use gpuaas_model::{
    Code, EventKind, Fault, FaultClass, MemberEvent, MemberState, NextAction, OperationKind, OperationState, SecretId,
    StepId, StepState, Timestamp,
};
use gpuaas_planner::{Ending, FailureScope, SecretPart, StepOutput};
use gpuaas_store::{LeaseRecord, SecretRecord, StoreError, Tx};
use gpuaas_wire::task::{TaskFailure, TaskOutcome};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    begin::change_member,
    dispatch::TaskEnd,
    driver::Driver,
    record::EventScope,
    rows::OperationRows,
    step::{AttemptEnd, kind_of},
};

impl Driver {
    /// Records how attempt number `attempt` of `step` ended. Ignores an attempt that is no longer the present one.
    pub(crate) async fn settle(
        &self,
        lease: &LeaseRecord,
        step: StepId,
        attempt: u32,
        end: &AttemptEnd,
    ) -> Result<(), StoreError> {
        let mut tx = self.engine.store().begin().await?;
        self.check_lease(&mut tx, lease).await?;
        let mut rows = OperationRows::load(&mut tx, self.id).await?;
        let Some(at) = rows.steps.iter().position(|row| row.id == step) else { return Ok(()) };
        if rows.steps[at].state != StepState::Running || rows.steps[at].attempts != attempt {
            return Ok(());
        }
        let events = EventScope::of(&rows.operation);
        if let Some(task) = rows.steps[at].task {
            let task = tx.task(task).await?;
            self.engine.record_task_end(&mut tx, task, &task_end(end)).await?;
        }
        match end {
            AttemptEnd::Succeeded(result) => match self.apply_result(&mut tx, &mut rows, at, result).await? {
                Ok(()) => self.succeed(&mut tx, &events, &mut rows, at).await?,
                Err(fault) => self.fail(&mut tx, &events, &mut rows, at, *fault).await?,
            },
            AttemptEnd::Failed(failure) => {
                let app = self.app(&rows)?;
                let fault = app.diagnose(&rows.steps[at].spec, failure, &rows.of.view());
                self.fail_with(&mut tx, &events, &mut rows, at, failure.code, fault).await?;
            }
            AttemptEnd::Interrupted => self.retry_now(&mut tx, &events, &mut rows, at).await?,
        }
        self.write_status(&mut tx, &events, &mut rows).await?;
        tx.commit().await?;
        gpuaas_crash_points::reach(Point::StepSettled(kind_of(&rows.steps[at].spec.action)));
        Ok(())
    }

    async fn succeed(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
    ) -> Result<(), StoreError> {
        let now = self.engine.ports().clock.now();
        let spec = rows.steps[at].spec.clone();
        let ended = match (spec.ends.clone(), spec.member) {
            (Some(event), Some(member)) => change_member(tx, events, rows, member, event, now).await?,
            (Some(_) | None, None) | (None, Some(_)) => Ok(()),
        };
        match ended {
            Ok(()) => self.end_step(tx, events, rows, at, StepState::Succeeded, None).await,
            Err(illegal) => {
                let failure = TaskFailure::new(Code::IllegalTransition, illegal.to_string());
                let fault = self.app(rows)?.diagnose(&spec, &failure, &rows.of.view());
                self.fail(tx, events, rows, at, fault).await
            }
        }
    }

    async fn fail_with(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
        code: Code,
        fault: Fault,
    ) -> Result<(), StoreError> {
        if code == Code::TaskCancelled && rows.operation.cancel_requested {
            return self.end_step(tx, events, rows, at, StepState::Cancelled, None).await;
        }
        self.fail(tx, events, rows, at, fault).await
    }

    /// Retries the step if the fault is retryable and attempts remain. Otherwise the step fails, and with it its member or the workload.
    async fn fail(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
        fault: Fault,
    ) -> Result<(), StoreError> {
        let ports = self.engine.ports();
        let now = ports.clock.now();
        let step = &rows.steps[at];
        let again = fault.class == FaultClass::Retryable
            && step.attempts < step.spec.retry.attempts_max
            && !rows.operation.cancel_requested;
        if again {
            let wait = step.spec.retry.wait_after(step.attempts, ports.entropy.below(1_000));
            return self.back_off(tx, events, rows, at, now.plus(wait), Some(fault)).await;
        }
        let spec = step.spec.clone();
        if let Some(member) = spec.member {
            // A removed member cannot fail and stays as it is; the step fails nevertheless.
            let _ = change_member(tx, events, rows, member, MemberEvent::Fail { fault: fault.clone() }, now).await?;
        }
        if spec.scope == FailureScope::Workload {
            rows.of.workload.fault = Some(fault.clone());
        }
        rows.operation.fault.get_or_insert_with(|| fault.clone());
        tx.update_operation(&rows.operation, rows.operation.state).await?;
        self.end_step(tx, events, rows, at, StepState::Failed, Some(fault)).await
    }

    /// Runs an interrupted step again at once: its handler is idempotent, checks first, and does only what is missing.
    async fn retry_now(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
    ) -> Result<(), StoreError> {
        let now = self.engine.ports().clock.now();
        if rows.steps[at].attempts >= rows.steps[at].spec.retry.attempts_max.max(INTERRUPTIONS_MAX) {
            let fault = Fault {
                code: Code::TaskInterrupted.to_string(),
                class: FaultClass::Manual,
                summary: "the node's agent died repeatedly during this task".to_owned(),
                evidence: None,
                next: NextAction::then_resume("find out why the agent dies", &rows.of.workload.name),
            };
            return self.fail(tx, events, rows, at, fault).await;
        }
        self.back_off(tx, events, rows, at, now, None).await
    }

    async fn back_off(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
        not_before: Timestamp,
        fault: Option<Fault>,
    ) -> Result<(), StoreError> {
        let step = &mut rows.steps[at];
        let before = (step.state, step.attempts);
        step.state = StepState::Backoff;
        step.not_before = Some(not_before);
        step.detail = fault.as_ref().map(|fault| fault.summary.clone());
        step.fault = fault;
        tx.update_step(step, before).await?;
        events.step(tx, step).await
    }

    async fn end_step(
        &self,
        tx: &mut Tx,
        events: &EventScope,
        rows: &mut OperationRows,
        at: usize,
        state: StepState,
        fault: Option<Fault>,
    ) -> Result<(), StoreError> {
        let step = &mut rows.steps[at];
        let before = (step.state, step.attempts);
        step.state = state;
        step.ended_at = Some(self.engine.ports().clock.now());
        step.fault = fault;
        tx.update_step(step, before).await?;
        events.step(tx, step).await
    }

    /// Applies the values from a successful result, or returns the fault for which the result is not accepted.
    async fn apply_result(
        &self,
        tx: &mut Tx,
        rows: &mut OperationRows,
        at: usize,
        result: &Value,
    ) -> Result<Result<(), Box<Fault>>, StoreError> {
        let spec = rows.steps[at].spec.clone();
        let outputs = match self.app(rows)?.step_outputs(&spec, result, &rows.of.view()) {
            Ok(learned) => learned,
            Err(fault) => return Ok(Err(fault)),
        };
        for output in outputs {
            match output {
                StepOutput::Fact(name, value) => {
                    rows.of.workload.facts.insert(name, value);
                }
                StepOutput::Endpoint(endpoint) => {
                    rows.of.workload.endpoint = Some(endpoint.clone());
                    if let Some(member) = rows.of.members.iter_mut().find(|member| Some(member.id) == spec.member) {
                        member.endpoint = Some(endpoint);
                        *member = tx.update_member(member, member.state.name()).await?;
                    }
                }
                StepOutput::Deposited { name, sha256 } => {
                    if let Err(fault) = self.check_deposit(tx, rows, &name, &sha256).await? {
                        return Ok(Err(fault));
                    }
                }
                StepOutput::Composed { name, parts } => self.compose(tx, rows, name, &parts).await?,
            }
        }
        Ok(Ok(()))
    }

    /// Checks that the stored secret is the one that the node reported as deposited.
    async fn check_deposit(
        &self,
        tx: &mut Tx,
        rows: &mut OperationRows,
        name: &str,
        sha256: &str,
    ) -> Result<Result<(), Box<Fault>>, StoreError> {
        let stored = match rows.of.secrets.get(name) {
            Some(secret) => Some(tx.secret(secret.id).await?),
            None => None,
        };
        if stored.as_ref().is_some_and(|stored| !stored.sealed.is_empty() && stored.sha256 == sha256) {
            return Ok(Ok(()));
        }
        Ok(Err(Box::new(Fault {
            code: Code::Unavailable.to_string(),
            class: FaultClass::Retryable,
            summary: format!("the node reported the secret {name}, but it did not arrive"),
            evidence: None,
            next: NextAction::text("nothing; the step is retried"),
        })))
    }

    async fn compose(
        &self,
        tx: &mut Tx,
        rows: &mut OperationRows,
        name: String,
        parts: &[SecretPart],
    ) -> Result<(), StoreError> {
        let mut plain = Zeroizing::new(Vec::new());
        for part in parts {
            match part {
                SecretPart::Text(text) => plain.extend_from_slice(text.as_bytes()),
                SecretPart::Secret(of) => {
                    let view = rows
                        .of
                        .secrets
                        .get(of)
                        .ok_or_else(|| StoreError::NotFound { what: "secret", id: of.clone() })?;
                    let record = tx.secret(view.id).await?;
                    let opened = self.engine.keys().unseal(view.id, &record.sealed);
                    let opened = opened.map_err(|error| StoreError::corrupt("secrets", view.id, "sealed", error))?;
                    plain.extend_from_slice(&opened);
                }
            }
        }
        let record = seal_secret(&self.engine, rows.operation.workload, name, &plain)?;
        tx.put_secret(&record).await
    }

    /// Ends the operation.
    pub(crate) async fn finish(&self, lease: &LeaseRecord, ending: Ending) -> Result<(), StoreError> {
        let mut tx = self.engine.store().begin().await?;
        self.check_lease(&mut tx, lease).await?;
        let mut rows = OperationRows::load(&mut tx, self.id).await?;
        let events = EventScope::of(&rows.operation);
        let before = rows.operation.state;
        rows.operation.state = ending.state();
        rows.operation.ended_at = Some(self.engine.ports().clock.now());
        tx.update_operation(&rows.operation, before).await?;
        if ending == Ending::Cancelled {
            rows.of.workload.fault = cancelled(&rows);
        }
        if ending == Ending::Succeeded {
            rows.of.workload.observed_generation = rows.operation.generation;
            rows.of.workload.fault = None;
            if rows.operation.kind == OperationKind::Decommission {
                rows.of.workload.endpoint = None;
            }
        }
        self.write_status(&mut tx, &events, &mut rows).await?;
        events.operation(&mut tx, EventKind::OperationEnded, &rows.operation).await?;
        tx.commit().await?;
        self.engine.observe_nodes(rows.of.members.iter().map(|member| member.node)).await;
        debug_assert!(rows.operation.state.is_final() && rows.operation.state != OperationState::Failed);
        Ok(())
    }
}

/// Returns what a cancelled deployment or removal left on the nodes. Every other cancelled operation leaves the workload as it was.
fn cancelled(rows: &OperationRows) -> Option<Fault> {
    let what = match rows.operation.kind {
        OperationKind::Deploy => "deployment",
        OperationKind::Decommission => "removal",
        _ => return rows.of.workload.fault.clone(),
    };
    let view = rows.of.view();
    let touched = view.members.iter().filter(|member| member.touched && member.state != MemberState::Removed);
    let left: Vec<String> = touched.map(|member| format!("{} on {}", member.name, member.node.name)).collect();
    let left = match left.as_slice() {
        [] => "nothing was left on its nodes".to_owned(),
        left => format!("it may have left files and services of {}", left.join(", ")),
    };
    Some(Fault {
        code: Code::OperationCancelled.to_string(),
        class: FaultClass::Retryable,
        summary: format!("the {what} was cancelled; {left}"),
        evidence: None,
        next: NextAction::resume_or_remove(&view.name),
    })
}

/// Interruptions of one step after which an operator must look into it.
const INTERRUPTIONS_MAX: u32 = 5;

fn task_end(end: &AttemptEnd) -> TaskEnd {
    match end {
        AttemptEnd::Succeeded(result) => TaskEnd::Outcome(TaskOutcome::Succeeded { result: result.clone() }),
        AttemptEnd::Failed(failure) => TaskEnd::Outcome(TaskOutcome::Failed { failure: TaskFailure::clone(failure) }),
        AttemptEnd::Interrupted => TaskEnd::Interrupted,
    }
}

/// Converts a failure to seal a secret: a defect of the program, not of a row.
pub(crate) fn seal_error(error: gpuaas_trust::SealError) -> StoreError {
    StoreError::Database(error.to_string())
}

/// Seals a secret of a workload under a new id.
pub(crate) fn seal_secret(
    engine: &crate::engine::Engine,
    workload: gpuaas_model::WorkloadId,
    name: String,
    plain: &[u8],
) -> Result<SecretRecord, StoreError> {
    let id = SecretId::generate(&*engine.ports().clock, &*engine.ports().entropy);
    let bytes = engine.keys().seal(id, plain).map_err(seal_error)?;
    Ok(SecretRecord {
        id,
        workload: Some(workload),
        name,
        sealed: bytes,
        sha256: gpuaas_trust::sha256_hex(plain),
        created_at: engine.ports().clock.now(),
    })
}
