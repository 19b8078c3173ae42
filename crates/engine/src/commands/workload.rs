//! Workload commands: deploy, add members, other operations, resume and decommission. Each creates an operation whose steps are rows; the
//! driver executes it.

mod draft;
mod end_wait;
mod give_up;
mod preemption;
pub(crate) mod reconciliation;

use futures::FutureExt;
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{
    AuditAction, EventKind, MemberId, MemberState, Name, OperationId, OperationKind, OperationState, ProjectId, StepId,
    WorkloadId,
};
use gpuaas_planner::{OperationRequest, Plan};
use gpuaas_store::{MemberRecord, OperationRecord, StepRecord, Tx, WorkloadRecord};
use serde_json::{Value, json};

pub use self::give_up::GiveUp;
use self::{
    draft::{draft_decommission, draft_deploy, draft_members, draft_operation, draft_resume},
    preemption::Request,
};
use super::audit_workload;
pub use super::plan_check::{Preview, parse_digest};
use crate::{
    caller::Caller,
    driver::{LEASE_TTL, lease_name},
    engine::Engine,
    error::CommandError,
    precondition::Precondition,
    record::EventScope,
    rows::WorkloadRows,
    workload_status::refresh_workload,
};

/// A request to deploy an app.
#[derive(Clone, Debug)]
pub struct Deploy {
    /// The project that will own the workload.
    pub project: ProjectId,
    /// The app's slug.
    pub app: String,
    /// The version; `None` for the most recently imported one.
    pub version: Option<String>,
    /// The workload's name.
    pub name: Name,
    /// The requested placement, in the app's schema.
    pub intent: Value,
    /// The tenant's settings, in the app's schema.
    pub config: Value,
}

/// An accepted operation.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The workload as accepted.
    pub workload: WorkloadRecord,
    /// The operation.
    pub operation: OperationRecord,
    /// The operation's steps, all pending.
    pub steps: Vec<StepRecord>,
}

/// Accepts a deployment, or refuses it with all reasons and changes nothing.
pub async fn deploy(engine: &Engine, caller: &Caller, ask: Deploy) -> Result<Accepted, CommandError> {
    let mut tx = engine.store().begin().await?;
    let draft = draft_deploy(engine, caller, &mut tx, ask).await?;
    draft.check_expected(engine, caller)?;
    tx.insert_workload(&draft.rows.workload).await?;
    tx.insert_members(&draft.rows.members).await?;
    for secret in &draft.secrets {
        tx.put_secret(secret).await?;
    }
    // Without the settings, which may be long: the workload shows them.
    let WorkloadRecord { app, version, intent, .. } = &draft.rows.workload;
    let metadata = json!({ "app": app, "version": version, "intent": intent });
    accept(engine, caller, tx, draft.rows, draft.plan, (AuditAction::WorkloadDeploy, metadata, None)).await
}

/// Previews [`deploy`]. Changes nothing.
pub async fn preview_deploy(engine: &Engine, caller: &Caller, ask: Deploy) -> Result<Preview, CommandError> {
    // The transaction is never committed: it gives the same reads and leaves no trace.
    let mut tx = engine.store().begin().await?;
    let draft = draft_deploy(engine, caller, &mut tx, ask).await?;
    draft.preview(engine, caller, &mut tx).await
}

/// Accepts additional members for a running workload.
pub async fn add_member(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    intent: Value,
) -> Result<Accepted, CommandError> {
    let request = Request { engine, caller, id, precondition };
    request.preempting(|request| try_add_member(request, &intent).boxed()).await
}

async fn try_add_member(request: Request<'_>, intent: &Value) -> Result<Accepted, CommandError> {
    let Request { engine, caller, id, precondition } = request;
    let mut tx = engine.store().begin().await?;
    let mut draft = draft_members(engine, caller, &mut tx, (id, precondition), intent).await?;
    draft.check_expected(engine, caller)?;
    draft.rows.write_added(&mut tx, draft.placed.len()).await?;
    draft.rows.workload.generation += 1;
    let about = (AuditAction::WorkloadAddMember, json!({ "intent": intent }), None);
    accept(engine, caller, tx, draft.rows, draft.plan, about).await
}

/// Previews [`add_member`]. Changes nothing.
pub async fn preview_add_member(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    intent: Value,
) -> Result<Preview, CommandError> {
    let mut tx = engine.store().begin().await?;
    let draft = draft_members(engine, caller, &mut tx, (id, precondition), &intent).await?;
    draft.preview(engine, caller, &mut tx).await
}

/// Accepts the removal of a workload from all of its nodes, and gives up none of them.
pub async fn decommission(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
) -> Result<Accepted, CommandError> {
    decommission_giving_up(engine, caller, id, precondition, &GiveUp::default()).await
}

/// Accepts the removal of a workload from all of its nodes. Allowed in every lifecycle state except `decommissioned`. Members that are given
/// up are removed without proof: their nodes block placements and their allocations are not released until they are known to be clean.
pub async fn decommission_giving_up(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    give_up: &GiveUp,
) -> Result<Accepted, CommandError> {
    let request = Request { engine, caller, id, precondition };
    request.preempting(|request| try_decommission(request, give_up).boxed()).await
}

async fn try_decommission(request: Request<'_>, give_up: &GiveUp) -> Result<Accepted, CommandError> {
    let Request { engine, caller, id, precondition } = request;
    let mut tx = engine.store().begin().await?;
    let mut draft = draft_decommission(engine, caller, &mut tx, (id, precondition), give_up).await?;
    draft.check_expected(engine, caller)?;
    draft.rows.workload.generation += 1;
    let about = (AuditAction::WorkloadDecommission, json!(draft.request.parameters), None);
    accept_for(engine, caller, tx, draft.rows, draft.plan, (draft.request, draft.targets), about).await
}

/// Previews [`decommission`]. Changes nothing.
pub async fn preview_decommission(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
) -> Result<Preview, CommandError> {
    preview_giving_up(engine, caller, id, precondition, &GiveUp::default()).await
}

/// Previews [`decommission_giving_up`]. Changes nothing.
pub async fn preview_giving_up(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    give_up: &GiveUp,
) -> Result<Preview, CommandError> {
    let mut tx = engine.store().begin().await?;
    let draft = draft_decommission(engine, caller, &mut tx, (id, precondition), give_up).await?;
    draft.preview(engine, caller, &mut tx).await
}

/// Accepts an operation with parameters on all members of a workload, as its app's manifest describes it.
pub async fn start_operation(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    operation: OperationRequest,
) -> Result<Accepted, CommandError> {
    let request = Request { engine, caller, id, precondition };
    request.preempting(|request| try_start_operation(request, operation.clone()).boxed()).await
}

async fn try_start_operation(request: Request<'_>, operation: OperationRequest) -> Result<Accepted, CommandError> {
    let Request { engine, caller, id, precondition } = request;
    let mut tx = engine.store().begin().await?;
    let mut draft = draft_operation(engine, caller, &mut tx, (id, precondition), operation).await?;
    draft.check_expected(engine, caller)?;
    draft.rows.write_added(&mut tx, draft.placed.len()).await?;
    draft.rows.workload.generation += 1;
    let about = (AuditAction::OperationStart, json!(draft.request), None);
    accept_for(engine, caller, tx, draft.rows, draft.plan, (draft.request, draft.targets), about).await
}

/// Previews [`start_operation`]. Changes nothing.
pub async fn preview_operation(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    request: &OperationRequest,
) -> Result<Preview, CommandError> {
    let mut tx = engine.store().begin().await?;
    let draft = draft_operation(engine, caller, &mut tx, (id, precondition), request.clone()).await?;
    draft.preview(engine, caller, &mut tx).await
}

/// Accepts a new operation in place of the newest one, which ended without success: of the same kind and with the same parameters, for its
/// targets that still exist.
pub async fn resume(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
) -> Result<Accepted, CommandError> {
    let request = Request { engine, caller, id, precondition };
    request.preempting(|request| try_resume(request).boxed()).await
}

async fn try_resume(request: Request<'_>) -> Result<Accepted, CommandError> {
    let Request { engine, caller, id, precondition } = request;
    let mut tx = engine.store().begin().await?;
    let draft = draft_resume(engine, caller, &mut tx, (id, precondition)).await?;
    draft.check_expected(engine, caller)?;
    let about = (AuditAction::WorkloadResume, json!({ "resumes": draft.resumes }), draft.resumes);
    accept_for(engine, caller, tx, draft.rows, draft.plan, (draft.request, draft.targets), about).await
}

/// Previews [`resume`]. Changes nothing.
pub async fn preview_resume(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
) -> Result<Preview, CommandError> {
    let mut tx = engine.store().begin().await?;
    let draft = draft_resume(engine, caller, &mut tx, (id, precondition)).await?;
    draft.preview(engine, caller, &mut tx).await
}

type About = (AuditAction, Value, Option<OperationId>);

async fn accept(
    engine: &Engine,
    caller: &Caller,
    tx: Tx,
    rows: WorkloadRows,
    plan: Plan,
    about: About,
) -> Result<Accepted, CommandError> {
    let touched = |member: &&MemberRecord| member.state == MemberState::Pending;
    let targets = rows.members.iter().filter(touched).map(|member| member.id).collect();
    let request = OperationRequest::of(plan.kind);
    accept_for(engine, caller, tx, rows, plan, (request, targets), about).await
}

/// Writes operation, steps, workload, events and audit record, and commits unless the caller asks for a dry run.
async fn accept_for(
    engine: &Engine,
    caller: &Caller,
    mut tx: Tx,
    mut rows: WorkloadRows,
    plan: Plan,
    (request, targets): (OperationRequest, Vec<MemberId>),
    (action, mut metadata, resumes): About,
) -> Result<Accepted, CommandError> {
    let ports = engine.ports();
    rows.clear_fault();
    let newest = tx.newest_operation(rows.workload.id).await?.map(|newest| newest.id);
    let id = OperationId::generate_after(newest, &*ports.clock, &*ports.entropy);
    let by = (caller.principal.name.clone(), caller.correlation);
    let operation = OperationRecord {
        parameters: request.parameters,
        targets,
        resumes,
        ..OperationRecord::queued(id, &rows.workload, request.kind, by, ports.clock.now())
    };
    metadata["operation"] = json!(operation.id);
    metadata["members"] = json!(placed_members(&rows, &operation.targets));
    if let Some(digest) = &caller.expected_plan {
        metadata["plan_digest"] = json!(digest);
    }
    let (steps, superseded) = insert(engine, &mut tx, &operation, plan).await?;
    if let Some(superseded) = superseded {
        metadata["supersedes"] = json!(superseded);
    }
    let events = EventScope::of(&operation);
    if is_first_deploy(&operation) {
        events.workload(&mut tx, EventKind::WorkloadRequested, &rows.workload).await?;
    } else {
        rows.workload = tx.update_workload(&rows.workload).await?;
    }
    refresh_workload(&mut tx, &events, rows.workload.id).await?;
    audit_workload(&mut tx, caller, action, &rows.workload, metadata).await?;
    let workload = tx.workload(rows.workload.id).await?;
    caller.commit(tx).await?;
    Ok(Accepted { workload, operation, steps })
}

/// Inserts an operation with its steps. Returns the steps, and the operation that it superseded.
async fn insert(
    engine: &Engine,
    tx: &mut Tx,
    operation: &OperationRecord,
    plan: Plan,
) -> Result<(Vec<StepRecord>, Option<OperationId>), CommandError> {
    let superseded = supersede_newest(tx, operation).await?;
    let steps = steps(engine, operation.id, plan);
    tx.insert_operation(operation, &steps).await?;
    // The accepting replica takes the lease: others hear of the operation before this one has started a driver, and would contend for it.
    tx.acquire_lease(&lease_name(operation.id), engine.replica(), LEASE_TTL).await?;
    Ok((steps, superseded))
}

/// Names the targets of an operation with their machines.
fn placed_members(rows: &WorkloadRows, targets: &[MemberId]) -> String {
    let view = rows.view();
    let placed = targets.iter().filter_map(|target| view.member(*target));
    placed.map(|member| format!("{} on {}", member.name, member.machine.name)).collect::<Vec<_>>().join(", ")
}

/// Ends the workload's newest operation as `failed` if it needs attention: it cannot be resumed any more, and `by` shows what still needs
/// attention. So at most one operation of a workload needs attention, the newest. Returns its id.
async fn supersede_newest(tx: &mut Tx, by: &OperationRecord) -> Result<Option<OperationId>, CommandError> {
    let newest = tx.newest_operation(by.workload).await?.filter(|_| !bugs::on(Bug::SupersedeSkipped));
    let Some(newest) = newest.filter(|newest| newest.state == OperationState::NeedsAttention) else {
        return Ok(None);
    };
    let ended = OperationRecord { state: OperationState::Failed, superseded_by: Some(by.id), ..newest };
    tx.update_operation(&ended, OperationState::NeedsAttention).await?;
    EventScope::of(by).operation(tx, EventKind::OperationSuperseded, &ended).await?;
    Ok(Some(ended.id))
}

fn is_first_deploy(operation: &OperationRecord) -> bool {
    operation.kind == OperationKind::Deploy && operation.resumes.is_none()
}

fn steps(engine: &Engine, operation: OperationId, plan: Plan) -> Vec<StepRecord> {
    let ports = engine.ports();
    plan.steps
        .into_iter()
        .zip(0..)
        .map(|(spec, position)| {
            StepRecord::pending(StepId::generate(&*ports.clock, &*ports.entropy), operation, position, spec)
        })
        .collect()
}
