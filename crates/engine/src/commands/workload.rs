//! Workload commands: deploy, add members, other operations, resume and decommission. Each creates an operation whose steps are rows; the
//! driver executes it.

use std::collections::BTreeMap;

use gpuaas_model::{
    AuditAction, Code, EventKind, Lifecycle, MemberId, MemberState, Name, OperationId, OperationKind, OperationState,
    Permission, ProjectId, SecretId, StepId, StepState, WorkloadId,
};
use gpuaas_planner::{App, OperationRequest, Plan, PlanRefusal, check, placement::Placed, status::Status};
use gpuaas_store::{MemberRecord, OperationRecord, SecretRecord, StepRecord, Tx, WorkloadRecord};
use serde_json::{Value, json};

use super::{audit_workload, placement};
use crate::{
    caller::Caller,
    driver::{LEASE_TTL, lease_name},
    engine::Engine,
    error::CommandError,
    precondition::Precondition,
    record::EventScope,
    rows::WorkloadRows,
    secrets::seal_secret,
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

/// The preview of an operation.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The plan that the control plane would execute.
    pub plan: Plan,
    /// The members that it would create; empty for operations on existing members.
    pub placed: Vec<Placed>,
}

/// Accepts a deployment, or refuses it with all reasons and changes nothing.
pub async fn deploy(engine: &Engine, caller: &Caller, ask: Deploy) -> Result<Accepted, CommandError> {
    let mut tx = engine.store().begin().await?;
    let draft = draft_deploy(engine, caller, &mut tx, ask).await?;
    tx.insert_workload(&draft.rows.workload).await?;
    tx.insert_members(&draft.rows.members).await?;
    for secret in &draft.secrets {
        tx.put_secret(secret).await?;
    }
    // Without the settings: those of an app may contain secrets.
    let WorkloadRecord { app, version, intent, .. } = &draft.rows.workload;
    let metadata = json!({ "app": app, "version": version, "intent": intent });
    accept(engine, caller, tx, draft.rows, draft.plan, (AuditAction::WorkloadDeploy, metadata, None)).await
}

/// Previews [`deploy`]. Changes nothing.
pub async fn preview_deploy(engine: &Engine, caller: &Caller, ask: Deploy) -> Result<Preview, CommandError> {
    // The transaction is never committed: it gives the same reads and leaves no trace.
    let mut tx = engine.store().begin().await?;
    let draft = draft_deploy(engine, caller, &mut tx, ask).await?;
    Ok(Preview { plan: draft.plan, placed: draft.placed })
}

/// Accepts additional members for a running workload.
pub async fn add_member(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    intent: Value,
) -> Result<Accepted, CommandError> {
    let mut tx = engine.store().begin().await?;
    let (mut rows, plan, placed) = draft_members(engine, caller, &mut tx, (id, precondition), &intent).await?;
    let added = rows.members.split_off(rows.members.len() - placed.len());
    tx.insert_members(&added).await?;
    rows.members.extend(added);
    rows.workload.generation += 1;
    accept(engine, caller, tx, rows, plan, (AuditAction::WorkloadAddMember, json!({ "intent": intent }), None)).await
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
    let (_, plan, placed) = draft_members(engine, caller, &mut tx, (id, precondition), &intent).await?;
    Ok(Preview { plan, placed })
}

/// Accepts the removal of a workload from all of its nodes. Allowed in every lifecycle state except `decommissioned`. A dry run returns the
/// operation with its steps and changes nothing.
pub async fn decommission(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
) -> Result<Accepted, CommandError> {
    let mut tx = engine.store().begin().await?;
    let mut rows = load_visible(caller, &mut tx, (id, precondition), Permission::WorkloadsWrite).await?;
    if rows.workload.lifecycle == Lifecycle::Decommissioned {
        return Err(CommandError::new(
            Code::StateConflict,
            format!("{} is already decommissioned", rows.workload.name),
        )
        .then(format!("see how it ended: gpuaas workload show {}", rows.workload.id)));
    }
    let targets = present_members(&rows, |_| true);
    let request = OperationRequest::of(OperationKind::Decommission);
    let plan = make_plan(engine, &rows, &request, &targets)?;
    rows.workload.generation += 1;
    let about = (AuditAction::WorkloadDecommission, json!({}), None);
    accept_for(engine, caller, tx, rows, plan, (request, targets), about).await
}

/// Accepts an operation with parameters on all members of a workload, as its app's manifest describes it.
pub async fn start_operation(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
    request: OperationRequest,
) -> Result<Accepted, CommandError> {
    let mut tx = engine.store().begin().await?;
    let (mut rows, plan, targets) = draft_operation(engine, caller, &mut tx, (id, precondition), &request).await?;
    rows.workload.generation += 1;
    let about = (AuditAction::OperationStart, json!(request), None);
    accept_for(engine, caller, tx, rows, plan, (request, targets), about).await
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
    let (_, plan, _) = draft_operation(engine, caller, &mut tx, (id, precondition), request).await?;
    Ok(Preview { plan, placed: Vec::new() })
}

/// Accepts a new operation in place of the newest one, which ended without success: of the same kind and with the same parameters, for its
/// targets that still exist.
pub async fn resume(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    precondition: &Precondition,
) -> Result<Accepted, CommandError> {
    let mut tx = engine.store().begin().await?;
    let rows = load_visible(caller, &mut tx, (id, precondition), Permission::OperationsControl).await?;
    let newest = tx.newest_operation(id).await?;
    let ended = newest.filter(|operation| operation.state.is_final() && operation.state != OperationState::Succeeded);
    let Some(failed) = ended else {
        return Err(CommandError::new(
            Code::StateConflict,
            format!("{} has no operation that can be resumed", rows.workload.name),
        )
        .then(format!("see its state: gpuaas workload show {}", rows.workload.name)));
    };
    // Members removed meanwhile are left out: another tenant may hold their nodes by now.
    let targets = present_members(&rows, |member| failed.targets.contains(&member));
    let request = failed.request();
    let plan = make_plan(engine, &rows, &request, &targets)?;
    let about = (AuditAction::WorkloadResume, json!({ "resumes": failed.id }), Some(failed.id));
    accept_for(engine, caller, tx, rows, plan, (request, targets), about).await
}

/// Returns the wanted members that are not removed.
fn present_members(rows: &WorkloadRows, wanted: impl Fn(MemberId) -> bool) -> Vec<MemberId> {
    let present = rows.members.iter().filter(|member| member.state != MemberState::Removed);
    present.map(|member| member.id).filter(|member| wanted(*member)).collect()
}

struct Draft {
    rows: WorkloadRows,
    placed: Vec<Placed>,
    secrets: Vec<SecretRecord>,
    plan: Plan,
}

async fn draft_deploy(engine: &Engine, caller: &Caller, tx: &mut Tx, ask: Deploy) -> Result<Draft, CommandError> {
    caller.require_visible(ask.project, "project", ask.project)?;
    caller.require(Permission::WorkloadsWrite)?;
    let entry = engine.catalog().require(&ask.app)?;
    let version = offered_version(tx, &*entry.app, ask.version).await?;
    let refused = entry.app.check_config(&ask.config);
    if !refused.is_empty() {
        return Err(CommandError::because(Code::ConfigInvalid, "invalid settings", refused));
    }
    let placed = placement::place(tx, &*entry.app, ask.project, &ask.intent, &[]).await?;
    let now = engine.ports().clock.now();
    let id = WorkloadId::generate(&*engine.ports().clock, &*engine.ports().entropy);
    let first_phase = entry.app.manifest().phases.first().cloned().unwrap_or_default();
    let Status { lifecycle, phase, progress, health, recovery } = Status::requested(first_phase);
    let workload = WorkloadRecord {
        id,
        project: ask.project,
        name: ask.name,
        app: ask.app,
        version,
        intent: ask.intent,
        config: ask.config,
        lifecycle,
        phase,
        progress,
        health,
        recovery,
        fault: None,
        endpoints: Vec::new(),
        facts: BTreeMap::new(),
        generation: 1,
        observed_generation: 0,
        revision: 0,
        created_at: now,
        updated_at: now,
    };
    let members = placement::members(engine, id, &placed);
    let secrets = initial_secrets(engine, &*entry.app, id)?;
    let rows = WorkloadRows::draft(tx, workload, members, &secrets).await?;
    let targets: Vec<MemberId> = rows.members.iter().map(|member| member.id).collect();
    let plan = make_plan(engine, &rows, &OperationRequest::of(OperationKind::Deploy), &targets)?;
    Ok(Draft { rows, placed, secrets, plan })
}

async fn draft_members(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (id, precondition): (WorkloadId, &Precondition),
    intent: &Value,
) -> Result<(WorkloadRows, Plan, Vec<Placed>), CommandError> {
    let mut rows = load_visible(caller, tx, (id, precondition), Permission::WorkloadsWrite).await?;
    if rows.workload.lifecycle != Lifecycle::Running {
        return Err(CommandError::new(
            Code::StateConflict,
            format!("{} is {}; only a running workload can grow", rows.workload.name, rows.workload.lifecycle),
        )
        .then(format!("see what it waits for: gpuaas workload show {}", rows.workload.name)));
    }
    let app = app_of(engine, &rows)?;
    let placed = placement::place(tx, app, rows.workload.project, intent, &rows.view().members).await?;
    let added = placement::members(engine, id, &placed);
    let targets: Vec<MemberId> = added.iter().map(|member| member.id).collect();
    rows.add_members(tx, added).await?;
    let plan = make_plan(engine, &rows, &OperationRequest::of(OperationKind::AddMember), &targets)?;
    Ok((rows, plan, placed))
}

/// Plans an operation on the present members of a workload. Kinds that have a request of their own are refused.
async fn draft_operation(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (id, precondition): (WorkloadId, &Precondition),
    request: &OperationRequest,
) -> Result<(WorkloadRows, Plan, Vec<MemberId>), CommandError> {
    let rows = load_visible(caller, tx, (id, precondition), Permission::WorkloadsWrite).await?;
    if let Some(command) = request.kind.own_command() {
        let detail = format!("{} cannot be started here: it has its own command", request.kind);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("kind").then(format!("see: {command}")));
    }
    if rows.workload.lifecycle != Lifecycle::Running {
        let WorkloadRecord { name, lifecycle, .. } = &rows.workload;
        let detail = format!("{name} is {lifecycle}; this operation needs a running workload");
        let next = match lifecycle {
            Lifecycle::Decommissioned => "deploy a new workload: gpuaas workload deploy --help".to_owned(),
            _ => format!("see its state and what to do: gpuaas workload show {name}"),
        };
        return Err(CommandError::new(Code::StateConflict, detail).then(next));
    }
    let targets = present_members(&rows, |_| true);
    let plan = make_plan(engine, &rows, request, &targets)?;
    Ok((rows, plan, targets))
}

/// Returns the wanted version if every file of its release is imported; without a wanted version, the most recently imported complete one.
async fn offered_version(tx: &mut Tx, app: &dyn App, wanted: Option<String>) -> Result<String, CommandError> {
    let manifest = app.manifest();
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut imported = BTreeMap::new();
    for artifact in tx.artifacts(Some(&manifest.slug), None).await? {
        imported.entry(artifact.version.clone()).or_insert(artifact.imported_at);
        files.entry(artifact.version).or_default().push(artifact.name);
    }
    files.retain(|_, names| manifest.release_files.iter().all(|wanted| names.contains(wanted)));
    let offered: Vec<&str> = files.keys().map(String::as_str).collect();
    let import = format!("gpuaas artifact import {slug} SOURCE", slug = manifest.slug);
    match wanted {
        Some(version) if files.contains_key(&version) => Ok(version),
        Some(version) => Err(CommandError::new(
            Code::VersionUnknown,
            format!("{} offers no version {version}; it offers {}", manifest.slug, listed(&offered)),
        )
        .about("version")
        .then(format!("choose an offered version, or ask an operator to import it: {import}"))),
        None => files.keys().max_by_key(|version| imported.get(*version)).cloned().ok_or_else(|| {
            CommandError::new(Code::VersionUnknown, format!("no release of {} is imported", manifest.slug))
                .about("version")
                .then(format!("ask an operator to import one: {import}"))
        }),
    }
}

fn listed(versions: &[&str]) -> String {
    if versions.is_empty() { "none".to_owned() } else { versions.join(", ") }
}

/// Creates the random secrets, and empty records for those that a node deposits later.
fn initial_secrets(engine: &Engine, app: &dyn App, workload: WorkloadId) -> Result<Vec<SecretRecord>, CommandError> {
    let ports = engine.ports();
    let mut secrets = Vec::new();
    for spec in app.initial_secrets() {
        if spec.random_bytes == 0 {
            let id = SecretId::generate(&*ports.clock, &*ports.entropy);
            let created_at = ports.clock.now();
            let workload = Some(workload);
            secrets.push(SecretRecord {
                id,
                workload,
                name: spec.name,
                sealed: Vec::new(),
                sha256: String::new(),
                created_at,
            });
            continue;
        }
        let mut random = zeroize::Zeroizing::new(vec![0_u8; spec.random_bytes]);
        ports.entropy.fill(&mut random);
        let text = zeroize::Zeroizing::new(hex::encode(&*random));
        secrets.push(seal_secret(engine, workload, spec.name, text.as_bytes())?);
    }
    Ok(secrets)
}

fn make_plan(
    engine: &Engine,
    rows: &WorkloadRows,
    request: &OperationRequest,
    targets: &[MemberId],
) -> Result<Plan, CommandError> {
    let app = app_of(engine, rows)?;
    let view = rows.view();
    let startable = app.manifest().operations.iter().filter(|of| of.is_available && of.kind.own_command().is_none());
    let startable: Vec<&str> = startable.map(|of| of.kind.as_str()).collect();
    let planned = request.check(app.manifest()).and_then(|()| app.plan(request, &view, targets));
    let plan = planned.map_err(|refusal| match refusal {
        PlanRefusal::Unsupported { ref app, .. } | PlanRefusal::Unavailable { ref app, .. } => {
            CommandError::new(Code::StateConflict, refusal.to_string()).then(match startable.as_slice() {
                [] => format!("{app} has no operation that can be started yet; see gpuaas app show {app}"),
                kinds => format!("use one of {}; see their parameters: gpuaas app show {app}", kinds.join(", ")),
            })
        }
        PlanRefusal::Parameters(reasons) => {
            CommandError::because(Code::FieldInvalid, "parameters refused", reasons).about("parameters")
        }
        PlanRefusal::NotNow(why) => {
            let next = format!("see its members: gpuaas workload show {}", rows.workload.name);
            CommandError::new(Code::StateConflict, why).then(next)
        }
    })?;
    let findings = check(&plan, &app.manifest().phases, &view.members);
    if findings.is_empty() {
        return Ok(plan);
    }
    for finding in &findings {
        tracing::error!(%finding, workload = %rows.workload.id, "a plan is invalid and is not executed");
    }
    Err(CommandError::new(Code::Internal, format!("the plan is invalid: {}", findings[0])))
}

fn app_of<'a>(engine: &'a Engine, rows: &WorkloadRows) -> Result<&'a dyn App, CommandError> {
    Ok(&*engine.catalog().require(&rows.workload.app)?.app)
}

/// Loads a workload that the caller may see and change with `permission`, and that matches the precondition.
async fn load_visible(
    caller: &Caller,
    tx: &mut Tx,
    (id, precondition): (WorkloadId, &Precondition),
    permission: Permission,
) -> Result<WorkloadRows, CommandError> {
    let rows = WorkloadRows::load(tx, id).await?;
    caller.require_visible(rows.workload.project, "workload", id)?;
    caller.require(permission)?;
    precondition.check(&rows.workload.name, &rows.workload)?;
    Ok(rows)
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
    let operation = OperationRecord {
        id: OperationId::generate(&*ports.clock, &*ports.entropy),
        workload: rows.workload.id,
        project: rows.workload.project,
        kind: request.kind,
        parameters: request.parameters,
        state: OperationState::Queued,
        requested_by: caller.principal.name.clone(),
        correlation: caller.correlation,
        targets,
        generation: rows.workload.generation,
        resumes,
        superseded_by: None,
        cancel_requested: false,
        fault: None,
        created_at: ports.clock.now(),
        started_at: None,
        ended_at: None,
    };
    metadata["operation"] = json!(operation.id);
    metadata["members"] = json!(placed_members(&rows, &operation.targets));
    if let Some(superseded) = supersede_newest(&mut tx, &operation).await? {
        metadata["supersedes"] = json!(superseded);
    }
    let steps: Vec<StepRecord> = steps(engine, operation.id, plan);
    tx.insert_operation(&operation, &steps).await?;
    // The accepting replica takes the lease: others hear of the operation before this one has started a driver, and would contend for it.
    tx.acquire_lease(&lease_name(operation.id), engine.replica(), LEASE_TTL).await?;
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

/// Names the targets of an operation with their machines.
fn placed_members(rows: &WorkloadRows, targets: &[MemberId]) -> String {
    let view = rows.view();
    let placed = targets.iter().filter_map(|target| view.member(*target));
    placed.map(|member| format!("{} on {}", member.name, member.machine.name)).collect::<Vec<_>>().join(", ")
}

/// Ends the workload's newest operation as `failed` if it needs attention: it cannot be resumed any more, and `by` shows what still needs
/// attention. So at most one operation of a workload needs attention, the newest. Returns its id.
async fn supersede_newest(tx: &mut Tx, by: &OperationRecord) -> Result<Option<OperationId>, CommandError> {
    let newest = tx.newest_operation(by.workload).await?;
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
        .map(|(spec, position)| StepRecord {
            id: StepId::generate(&*ports.clock, &*ports.entropy),
            operation,
            position,
            spec,
            state: StepState::Pending,
            attempts: 0,
            interruptions: 0,
            not_before: None,
            task: None,
            detail: None,
            fault: None,
            started_at: None,
            deadline_at: None,
            ended_at: None,
        })
        .collect()
}
