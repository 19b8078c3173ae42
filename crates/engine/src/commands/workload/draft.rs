//! Drafts of operations: what a command would write, with its plan. A preview ends after the draft.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_model::{Code, Line, MemberId, MemberState, OperationId, OperationKind, Permission, SecretId, WorkloadId};
use gpuaas_planner::{
    AddedMembers, App, MemberView, OperationRequest, Plan, PlanOutline, PlanRefusal, StepProgress, Subjects, check,
    control, finished_members, lifecycle, placement::Placed,
};
use gpuaas_store::{OperationRecord, SecretRecord, Tx, WorkloadRecord};
use serde_json::Value;

use super::{
    Deploy,
    end_wait::end_wait,
    give_up::{self, GiveUp},
};
use crate::{
    caller::Caller,
    commands::{
        placement,
        plan_check::{self, Preview},
    },
    engine::Engine,
    error::{CommandError, check_line},
    precondition::Precondition,
    rows::{WorkloadRows, newest_operation, progress},
    secrets::seal_secret,
};

/// Returns the wanted members that are not removed.
fn present_members(rows: &WorkloadRows, wanted: impl Fn(MemberId) -> bool) -> Vec<MemberId> {
    let present = rows.members.iter().filter(|member| member.state != MemberState::Removed);
    present.map(|member| member.id).filter(|member| wanted(*member)).collect()
}

/// An operation that is not written yet.
pub(super) struct Draft {
    /// The rows with the members that it adds, which are the last ones.
    pub(super) rows: WorkloadRows,
    pub(super) plan: Plan,
    pub(super) request: OperationRequest,
    pub(super) targets: Vec<MemberId>,
    /// The members that it adds.
    pub(super) placed: Vec<Placed>,
    /// The secrets that it creates.
    pub(super) secrets: Vec<SecretRecord>,
    /// The operation that it continues.
    pub(super) resumes: Option<OperationId>,
}

impl Draft {
    /// Plans the operation. It adds no members and no secrets.
    fn of(
        engine: &Engine,
        rows: WorkloadRows,
        request: OperationRequest,
        targets: Vec<MemberId>,
    ) -> Result<Self, CommandError> {
        let plan = make_plan(engine, &rows, &request, &targets)?;
        Ok(Self { rows, plan, request, targets, placed: Vec::new(), secrets: Vec::new(), resumes: None })
    }

    /// Returns the plan as a person reads it. A workload that does not exist yet has no id that a preview could know.
    fn outline(&self, engine: &Engine) -> Result<PlanOutline, CommandError> {
        let app = app_of(engine, &self.rows)?;
        let outline = PlanOutline::of(app, &self.plan, &self.request, &self.rows.view(), &self.targets);
        let is_new = self.request.kind == OperationKind::Deploy && self.resumes.is_none();
        let workload = outline.workload.filter(|_| !is_new);
        Ok(PlanOutline { workload, resumes: self.resumes, ..outline })
    }

    /// Refuses a caller who has seen another plan.
    pub(super) fn check_expected(&self, engine: &Engine, caller: &Caller) -> Result<(), CommandError> {
        plan_check::check_expected(engine, caller, || self.outline(engine))
    }

    pub(super) async fn preview(self, engine: &Engine, caller: &Caller, tx: &mut Tx) -> Result<Preview, CommandError> {
        let outline = self.outline(engine)?;
        plan_check::preview(engine, caller, tx, (self.plan, self.placed, outline)).await
    }
}

/// Drafts a workload with its members and secrets, and plans its deployment.
pub(super) async fn draft_deploy(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    ask: Deploy,
) -> Result<Draft, CommandError> {
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
    // The newest workload is the one that a name means.
    let namesake = tx.workload_by_name(ask.project, ask.name.as_str()).await?.map(|namesake| namesake.id);
    let id = WorkloadId::generate_after(namesake, &*engine.ports().clock, &*engine.ports().entropy);
    let first_phase = entry.app.manifest().phases.first().cloned().unwrap_or_default();
    let workload = WorkloadRecord {
        intent: ask.intent,
        config: ask.config,
        ..WorkloadRecord::requested(id, ask.project, ask.name, (ask.app, version), first_phase, now)
    };
    let members = placement::members(engine, id, &placed);
    let secrets = initial_secrets(engine, &*entry.app, id)?;
    let rows = WorkloadRows::draft(tx, workload, members, &secrets).await?;
    let targets: Vec<MemberId> = rows.members.iter().map(|member| member.id).collect();
    let draft = Draft::of(engine, rows, OperationRequest::of(OperationKind::Deploy), targets)?;
    Ok(Draft { placed, secrets, ..draft })
}

/// Drafts additional members, and plans how they join.
pub(super) async fn draft_members(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (id, precondition): (WorkloadId, &Precondition),
    intent: &Value,
) -> Result<Draft, CommandError> {
    let mut rows = load_visible(caller, tx, (id, precondition), Permission::WorkloadsWrite).await?;
    check_lifecycle(&rows, OperationKind::AddMember)?;
    let app = app_of(engine, &rows)?;
    let placed = placement::place(tx, app, rows.workload.project, intent, &rows.view().members).await?;
    let added = placement::members(engine, id, &placed);
    let targets: Vec<MemberId> = added.iter().map(|member| member.id).collect();
    rows.add_members(tx, added).await?;
    let draft = Draft::of(engine, rows, OperationRequest::of(OperationKind::AddMember), targets)?;
    Ok(Draft { placed, ..draft })
}

/// Plans the removal of all members; those that are given up are removed without proof.
pub(super) async fn draft_decommission(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    of: (WorkloadId, &Precondition),
    give_up: &GiveUp,
) -> Result<Draft, CommandError> {
    let rows = load_visible(caller, tx, of, Permission::WorkloadsWrite).await?;
    check_lifecycle(&rows, OperationKind::Decommission)?;
    let targets = present_members(&rows, |_| true);
    if give_up.is_requested() {
        Box::pin(end_wait(engine, caller, tx, &rows, (OperationKind::Decommission, &targets))).await?;
    }
    let request = Box::pin(give_up::decommission(tx, &rows, &targets, give_up)).await?;
    Draft::of(engine, rows, request, targets)
}

/// Plans the newest operation again, if it ended without success.
pub(super) async fn draft_resume(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (id, precondition): (WorkloadId, &Precondition),
) -> Result<Draft, CommandError> {
    let rows = load_visible(caller, tx, (id, precondition), Permission::OperationsControl).await?;
    let newest = tx.newest_operation(id).await?;
    control::check_resume(newest.as_ref().map(newest_operation), &rows.workload.name)?;
    let failed = newest.expect("a workload without operations has none that can be resumed");
    let done = repaired_members(tx, &rows, &failed).await?;
    // Members removed meanwhile are left out: another tenant may hold their nodes by now.
    let targets = present_members(&rows, |member| failed.targets.contains(&member) && !done.contains(&member));
    let draft = Draft::of(engine, rows, failed.request(), targets)?;
    Ok(Draft { resumes: Some(failed.id), ..draft })
}

/// Returns the members that an ended repair has repaired and that are still healthy: a resumed repair must not interrupt them again.
async fn repaired_members(
    tx: &mut Tx,
    rows: &WorkloadRows,
    ended: &OperationRecord,
) -> Result<BTreeSet<MemberId>, CommandError> {
    if ended.kind != OperationKind::Repair {
        return Ok(BTreeSet::new());
    }
    let steps: Vec<StepProgress> = tx.steps_of(ended.id).await?.iter().map(progress).collect();
    let mut done = finished_members(&steps);
    let view = rows.view();
    let is_well = |member: &MemberView| member.state.is_in_service() && !member.is_observed_unwell();
    done.retain(|member| view.member(*member).is_some_and(is_well));
    Ok(done)
}

/// Plans an operation on the present members of a workload. Kinds that have a request of their own are refused.
pub(super) async fn draft_operation(
    engine: &Engine,
    caller: &Caller,
    tx: &mut Tx,
    (id, precondition): (WorkloadId, &Precondition),
    request: OperationRequest,
) -> Result<Draft, CommandError> {
    let mut rows = load_visible(caller, tx, (id, precondition), Permission::WorkloadsWrite).await?;
    if let Some(command) = request.kind.own_command() {
        let detail = format!("{} cannot be started here: it has its own command", request.kind);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("kind").then(format!("see: {command}")));
    }
    let app = app_of(engine, &rows)?;
    request.check(app.manifest()).map_err(|refusal| refused(app, refusal))?;
    if let Some(reason) = request.reason() {
        check_line(Line::REASON, reason, "parameters.reason")?;
    }
    check_lifecycle(&rows, request.kind)?;
    let Subjects { existing: mut targets, added } =
        app.subjects(&request, &rows.view()).map_err(|refusal| refused(app, refusal))?;
    if request.gives_up() {
        Box::pin(end_wait(engine, caller, tx, &rows, (request.kind, &targets))).await?;
    }
    let mut placed = Vec::new();
    if let Some(AddedMembers { intent, field }) = added {
        let existing = rows.view().members;
        placed = placement::place(tx, app, rows.workload.project, &intent, &existing)
            .await
            .map_err(|refused| refused.about_each(&field))?;
        let members = placement::members(engine, id, &placed);
        targets.extend(members.iter().map(|member| member.id));
        rows.add_members(tx, members).await?;
    }
    let draft = Draft::of(engine, rows, request, targets)?;
    Ok(Draft { placed, ..draft })
}

/// Plans the reconciliation that the platform starts by itself.
pub(super) fn draft_reconciliation(engine: &Engine, rows: WorkloadRows) -> Result<Draft, CommandError> {
    let request = OperationRequest::of(OperationKind::Reconcile);
    check_lifecycle(&rows, request.kind)?;
    let app = app_of(engine, &rows)?;
    let subjects = app.subjects(&request, &rows.view()).map_err(|refusal| refused(app, refusal))?;
    Draft::of(engine, rows, request, subjects.existing)
}

/// Refuses an operation that the workload's lifecycle does not allow.
fn check_lifecycle(rows: &WorkloadRows, kind: OperationKind) -> Result<(), CommandError> {
    let WorkloadRecord { name, lifecycle, .. } = &rows.workload;
    lifecycle::check(kind, *lifecycle, name).map_err(|refusal| match refusal {
        PlanRefusal::Refused(reason) => CommandError::from_reason(*reason),
        other => CommandError::new(Code::StateConflict, other.to_string()),
    })
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
    let planned = request.check(app.manifest()).and_then(|()| app.plan(request, &view, targets));
    let plan = planned.map_err(|refusal| refused(app, refusal))?;
    let findings = check(&plan, &app.manifest().phases, &view.members);
    if findings.is_empty() {
        return Ok(plan);
    }
    for finding in &findings {
        tracing::error!(%finding, workload = %rows.workload.id, "a plan is invalid and is not executed");
    }
    Err(CommandError::new(Code::Internal, format!("the plan is invalid: {}", findings[0])))
}

/// Returns the error for the caller of an operation that cannot be planned.
fn refused(app: &dyn App, refusal: PlanRefusal) -> CommandError {
    let startable = app.manifest().operations.iter().filter(|of| of.is_available && of.kind.own_command().is_none());
    let startable: Vec<&str> = startable.map(|of| of.kind.as_str()).collect();
    match refusal {
        PlanRefusal::Unsupported { ref app, .. } | PlanRefusal::Unavailable { ref app, .. } => {
            CommandError::new(Code::StateConflict, refusal.to_string()).then(match startable.as_slice() {
                [] => format!("{app} has no operation that can be started yet; see gpuaas app show {app}"),
                kinds => format!("use one of {}; see their parameters: gpuaas app show {app}", kinds.join(", ")),
            })
        }
        PlanRefusal::Parameters(reasons) => {
            CommandError::because(Code::FieldInvalid, "parameters refused", reasons).about("parameters")
        }
        PlanRefusal::Refused(reason) => CommandError::from_reason(*reason),
    }
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
    precondition.check_workload(&rows.workload)?;
    Ok(rows)
}
