//! Reports of a workload's controller: a program of the tenant that knows the app better than its units show it.
//!
//! A report never changes lifecycle, operations or steps. `planner::report` decides what is accepted and what counts; a report that says
//! nothing new takes no write lock and leaves no event and no audit record.

use std::{collections::BTreeMap, time::Duration};

use gpuaas_model::{AuditAction, Code, EventKind, MemberState, Permission, Timestamp, WorkloadId};
use gpuaas_planner::report::{LastReport, MemberReport, Report, ReportRefusal, ReportedStatus, Subject};
use gpuaas_store::{
    MemberRecord, Reader, ServiceAccountRecord, StoreError, TokenRecord, Tx, WorkloadRecord, WorkloadReportRecord,
};
use serde_json::{Value, json};

use super::audit_workload;
use crate::{
    caller::Caller, engine::Engine, error::CommandError, record::EventScope, rows::WorkloadRows,
    workload_status::refresh_workload,
};

/// How long an equal report leaves the time of the last one unchanged: a controller that repeats itself every second is written once a
/// minute, and people still see that it lives.
const REPEATED_WITHIN: Duration = Duration::from_secs(60);

/// An accepted report.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The report with its author and times.
    pub record: WorkloadReportRecord,
    /// Its phase and progress.
    pub status: ReportedStatus,
    /// False if it says what was known already.
    pub is_changed: bool,
    /// What does not count at present, each with the reason.
    pub not_applied: Vec<String>,
}

/// Accepts a report of the controller of a workload. It replaces the report before.
pub async fn report(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    report: &Report,
) -> Result<Accepted, CommandError> {
    // Most reports say nothing new.
    let seen = Draft::of(engine, caller, &mut engine.store().read().await?, id, report).await?;
    if !seen.is_written() {
        return Ok(seen.accepted());
    }
    let mut tx = engine.store().begin().await?;
    let draft = Draft::of(engine, caller, &mut tx, id, report).await?;
    draft.write(caller, &mut tx).await?;
    caller.commit(tx).await?;
    Ok(draft.accepted())
}

/// Forgets what a service account reported about the workload that it controls. The account is deleted in the same transaction.
pub(super) async fn forget(tx: &mut Tx, caller: &Caller, account: &ServiceAccountRecord) -> Result<(), CommandError> {
    let Some(id) = account.workload else { return Ok(()) };
    if tx.workload_report(id).await?.is_none_or(|report| report.account != account.id) {
        return Ok(());
    }
    tx.delete_workload_report(id).await?;
    let events = EventScope { project: account.project, correlation: caller.correlation };
    let mut rows = WorkloadRows::load(tx, id).await?;
    if rows.workload.reported.is_some() {
        rows.end_report(tx, &events).await?;
        tx.update_workload(&rows.workload).await?;
        refresh_workload(tx, &events, id).await?;
    }
    Ok(())
}

/// What a report would change.
struct Draft {
    workload: WorkloadRecord,
    before: Option<WorkloadReportRecord>,
    record: WorkloadReportRecord,
    status: ReportedStatus,
    /// Members that change: before and after.
    members: Vec<(MemberRecord, MemberRecord)>,
    not_applied: Vec<String>,
}

impl Draft {
    async fn of(
        engine: &Engine,
        caller: &Caller,
        reader: &mut Reader,
        id: WorkloadId,
        report: &Report,
    ) -> Result<Self, CommandError> {
        let rows = WorkloadRows::load(reader, id).await?;
        caller.require_visible_workload(rows.workload.project, id, "workload", id)?;
        caller.require(Permission::WorkloadsReport)?;
        let account = caller.principal.service_account.filter(|_| caller.principal.role.is_of_workload());
        // A person who reported would speak for the controller, and no deletion of an account would end what was said.
        let Some(account) = account else {
            let detail = format!("only the controller of {} reports about it", rows.workload.name);
            let next = "use a token of its service account: gpuaas service-account create NAME --role app-controller \
                        --workload WORKLOAD";
            return Err(CommandError::new(Code::Forbidden, detail).then(next));
        };
        let content = gpuaas_trust::sha256_hex(json!(report).to_string().as_bytes());
        let before = reader.workload_report(id).await?.filter(|known| known.account == account);
        check(engine, &rows, report, before.as_ref(), &content)?;
        let (now, by) = (engine.ports().clock.now(), caller.principal.name.clone());
        let mut not_applied = Vec::new();
        let members = changed_members(&rows, report, (&by, now), &mut not_applied);
        let newest = reader.newest_operation(id).await?;
        if let Some(open) = newest.filter(|operation| !operation.state.is_final())
            && (report.phase.is_some() || report.progress.is_some())
        {
            not_applied.push(format!(
                "phase and progress: operation {} ({}) shows its own; the reported ones follow when it has ended",
                open.id, open.kind
            ));
        }
        let since = before.as_ref().map_or(now, |before| before.since);
        let (generation, sequence) = (report.generation, report.sequence);
        let record =
            WorkloadReportRecord { workload: id, account, by, generation, sequence, content, since, reported_at: now };
        let status = ReportedStatus { generation, phase: report.phase.clone(), progress: report.progress };
        let mut draft = Self { workload: rows.workload, before, record, status, members, not_applied };
        if let Some(before) = draft.before.clone().filter(|_| !draft.is_written()) {
            draft.record = before;
        }
        Ok(draft)
    }

    fn is_changed(&self) -> bool {
        self.workload.reported.as_ref() != Some(&self.status) || !self.members.is_empty()
    }

    fn is_written(&self) -> bool {
        let says_the_same = |before: &&WorkloadReportRecord| {
            (before.generation, before.sequence, &before.content)
                == (self.record.generation, self.record.sequence, &self.record.content)
        };
        let repeated = self.before.as_ref().filter(says_the_same);
        let is_recent =
            |before: &WorkloadReportRecord| before.reported_at.plus(REPEATED_WITHIN) > self.record.reported_at;
        self.is_changed() || !repeated.is_some_and(is_recent)
    }

    async fn write(&self, caller: &Caller, tx: &mut Tx) -> Result<(), CommandError> {
        check_account(tx, caller, &self.record, &self.workload).await?;
        if self.is_written() {
            tx.put_workload_report(&self.record).await?;
        }
        if !self.is_changed() {
            return Ok(());
        }
        let events = EventScope { project: self.workload.project, correlation: caller.correlation };
        for (before, member) in &self.members {
            let member = tx.update_member(member, member.state.name()).await?;
            if (before.health, &before.fault) != (member.health, &member.fault) {
                events.member(tx, &member).await?;
            }
        }
        if self.workload.reported.as_ref() != Some(&self.status) {
            tx.update_workload(&WorkloadRecord { reported: Some(self.status.clone()), ..self.workload.clone() })
                .await?;
        }
        refresh_workload(tx, &events, self.workload.id).await?;
        self.record_change(caller, tx, &events).await?;
        Ok(())
    }

    /// Writes the event, and the audit record if the reported health of a member changed.
    async fn record_change(&self, caller: &Caller, tx: &mut Tx, events: &EventScope) -> Result<(), StoreError> {
        let said: BTreeMap<String, Value> =
            self.members.iter().map(|(_, member)| (member.name(), shown(member))).collect();
        let data = json!({
            "name": self.workload.name, "by": self.record.by, "generation": self.record.generation,
            "sequence": self.record.sequence, "phase": self.status.phase, "progress": self.status.progress,
            "members": said,
        });
        events.event(tx, EventKind::WorkloadReported, "workload", self.workload.id.to_string(), data).await?;
        let judged = |member: &MemberRecord| {
            member.reported.as_ref().map(|counted| (counted.report.health, counted.report.code.clone()))
        };
        let changed = self.members.iter().filter(|(before, member)| judged(before) != judged(member));
        let changed: BTreeMap<String, Value> = changed.map(|(_, member)| (member.name(), shown(member))).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let metadata = json!({ "generation": self.record.generation, "members": changed });
        audit_workload(tx, caller, AuditAction::WorkloadReport, &self.workload, metadata).await
    }

    fn accepted(self) -> Accepted {
        let is_changed = self.is_changed();
        Accepted { record: self.record, status: self.status, is_changed, not_applied: self.not_applied }
    }
}

/// What events and audit records show of a report about a member; null if nothing is reported any more.
fn shown(member: &MemberRecord) -> Value {
    match &member.reported {
        Some(counted) => json!({ "health": counted.report.health, "code": counted.report.code }),
        None => Value::Null,
    }
}

/// Refuses a caller whose account was deleted since the request was authenticated: nothing would forget its report any more.
async fn check_account(
    tx: &mut Tx,
    caller: &Caller,
    record: &WorkloadReportRecord,
    workload: &WorkloadRecord,
) -> Result<(), CommandError> {
    let name = caller.principal.name.strip_prefix(TokenRecord::SERVICE_ACCOUNT_PREFIX);
    let found = match name.and_then(|name| name.parse().ok()) {
        Some(name) => match tx.service_account_by_name(workload.project, &name).await {
            Ok(found) => Some(found.id),
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    if found == Some(record.account) {
        return Ok(());
    }
    let detail = "the service account of this token was deleted";
    let next = "ask an admin of the project for an account: gpuaas service-account create NAME --role app-controller \
                --workload WORKLOAD";
    Err(CommandError::new(Code::Unauthenticated, detail).then(next))
}

fn check(
    engine: &Engine,
    rows: &WorkloadRows,
    report: &Report,
    before: Option<&WorkloadReportRecord>,
    content: &str,
) -> Result<(), CommandError> {
    let app = &engine.catalog().require(&rows.workload.app)?.app;
    let last = before.map(|before| LastReport {
        generation: before.generation,
        sequence: before.sequence,
        is_equal: before.content == content,
    });
    let subject = Subject {
        workload: &rows.view(),
        lifecycle: rows.workload.lifecycle,
        generation: rows.workload.generation,
        phases: &app.manifest().phases,
        last: last.as_ref(),
    };
    report.check(&subject).map_err(|refusal| {
        let detail = refusal.to_string();
        match refusal {
            ReportRefusal::Decommissioned(_) => CommandError::new(Code::StateConflict, detail)
                .then("end the controller, and delete its account: gpuaas service-account delete NAME"),
            ReportRefusal::Stale { field, .. } => CommandError::new(Code::ReportStale, detail)
                .about(field)
                .then(format!("read the workload again, then report: gpuaas workload show {}", rows.workload.name)),
            ReportRefusal::Invalid { field, next, .. } => {
                CommandError::new(Code::FieldInvalid, detail).about(field).then(next)
            }
        }
    })
}

/// Returns the members whose report changes, before and after. A report counts only for ready members, as a unit's report does: until then
/// their steps know more.
fn changed_members(
    rows: &WorkloadRows,
    report: &Report,
    (by, now): (&str, Timestamp),
    not_applied: &mut Vec<String>,
) -> Vec<(MemberRecord, MemberRecord)> {
    let mut changed = Vec::new();
    for member in &rows.members {
        let name = member.name();
        let mut said = report.members.iter().find(|reported| reported.member == name);
        if said.is_some() && !matches!(member.state, MemberState::Ready { .. }) {
            not_applied.push(format!("{name}: it is {}; its health counts once it is ready", member.state.name()));
            said = None;
        }
        let before = member.reported.as_ref().map(|counted| &counted.report);
        let mut next = member.clone();
        next.set_report(said.map(|said| MemberReport::of(said, by, before, now)), &rows.workload.name);
        if next != *member {
            changed.push((member.clone(), next));
        }
    }
    changed
}
