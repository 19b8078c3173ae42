//! Access to members' journals through the platform. The lines come from the nodes and are not stored.

use gpuaas_model::{AuditAction, Code, Coded, LogSource, MemberId, Name, Permission, ProjectId, WorkloadId};
use gpuaas_store::MemberRecord;
use serde_json::json;

use super::audit_workload;
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    ownership::{self, AccessError, NodeAccess},
    rows::WorkloadRows,
};

/// Most journals that one request for a workload's logs reads at once. Each has a connection of its own to its node.
pub const JOURNALS_MAX: usize = 64;

/// A journal that the caller may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSource {
    /// Access to the member's node.
    pub access: NodeAccess,
    /// The systemd unit.
    pub unit: String,
}

/// Selects the logs of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSelection {
    /// Names of the members whose journals are read; all members if empty.
    pub members: Vec<String>,
    /// The unit to read, of the members that have it; otherwise the main unit of each.
    pub unit: Option<String>,
    /// The sources to read.
    pub sources: Vec<LogSource>,
}

/// The logs of a workload that the caller may read.
#[derive(Clone, Debug)]
pub struct WorkloadLogs {
    /// The workload.
    pub workload: WorkloadId,
    /// The workload's name.
    pub name: Name,
    /// The workload's project.
    pub project: ProjectId,
    /// The selected journals; none unless [`LogSource::Journal`] was selected.
    pub journals: Vec<MemberJournal>,
}

/// The journal of one member.
#[derive(Clone, Debug)]
pub struct MemberJournal {
    /// The member.
    pub member: MemberId,
    /// The member's name.
    pub name: String,
    /// The systemd unit.
    pub unit: String,
    /// Access to the member's node, or why there is none: the member was removed, or runs on a machine without an agent.
    pub access: Result<NodeAccess, CommandError>,
}

/// Opens the journal of a member's unit, by default its first unit. Writes the audit record before the first line is sent.
pub async fn open(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    member: &str,
    unit: Option<&str>,
) -> Result<JournalSource, CommandError> {
    let mut tx = engine.store().begin().await?;
    let rows = WorkloadRows::load(&mut tx, id).await?;
    caller.require_visible(rows.workload.project, "workload", id)?;
    caller.require(Permission::LogsRead)?;
    let found = member_named(&rows, member)?;
    let entry = engine.catalog().require(&rows.workload.app)?;
    let units = entry.app.units(&found.component_key);
    let chosen = unit.map_or(units.first(), |unit| units.iter().find(|known| *known == unit));
    let unit = chosen.cloned().ok_or_else(|| {
        CommandError::new(Code::FieldInvalid, format!("{member} has only the units {}", units.join(", "))).about("unit")
    })?;
    let access = ownership::for_member(&mut tx, &rows.workload, found).await?;
    let source = JournalSource { access, unit };
    let metadata = json!({ "member": member, "node": found.place.node(), "unit": source.unit });
    audit_workload(&mut tx, caller, AuditAction::LogsRead, &rows.workload, metadata).await?;
    tx.commit().await?;
    Ok(source)
}

/// Opens the selected logs of a workload. Writes one audit record, which names the members and their nodes, before the first line is sent.
/// A member whose journal cannot be read is returned with the reason.
pub async fn open_workload(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    selection: &LogSelection,
) -> Result<WorkloadLogs, CommandError> {
    let mut tx = engine.store().begin().await?;
    let rows = WorkloadRows::load(&mut tx, id).await?;
    caller.require_visible(rows.workload.project, "workload", id)?;
    caller.require(Permission::LogsRead)?;
    let selected = selected_units(engine, &rows, selection)?;
    let mut journals = Vec::with_capacity(selected.len());
    for (member, unit) in selected {
        let access = match ownership::for_member(&mut tx, &rows.workload, member).await {
            Ok(access) => Ok(access),
            Err(AccessError::NotHeld(refused)) => Err(refused.into()),
            Err(AccessError::Store(error)) => return Err(error.into()),
        };
        journals.push(MemberJournal { member: member.id, name: member.name(), unit, access });
    }
    let readable = journals.iter().filter(|journal| journal.access.is_ok()).count();
    if readable > JOURNALS_MAX {
        let detail = format!("{readable} members were selected; at most {JOURNALS_MAX} journals are read at once");
        let next = format!("name up to {JOURNALS_MAX}: gpuaas workload logs {} --member MEMBER", rows.workload.name);
        return Err(CommandError::new(Code::FieldInvalid, detail).about("member").then(next));
    }
    let nodes = |journal: &MemberJournal| journal.access.as_ref().ok().map(|access| access.node().node);
    let metadata = json!({
        "members": journals.iter().map(|journal| &journal.name).collect::<Vec<_>>(),
        "nodes": journals.iter().filter_map(nodes).collect::<Vec<_>>(),
        "unit": selection.unit, "sources": selection.sources,
    });
    audit_workload(&mut tx, caller, AuditAction::LogsRead, &rows.workload, metadata).await?;
    let logs = WorkloadLogs { workload: id, name: rows.workload.name, project: rows.workload.project, journals };
    tx.commit().await?;
    Ok(logs)
}

/// Decides access to a member's node again, from the present rows, for a journal that was opened before.
pub async fn reopen(engine: &Engine, workload: WorkloadId, member: MemberId) -> Result<NodeAccess, CommandError> {
    let mut reader = engine.store().read().await?;
    let (workload, member) = (reader.workload(workload).await?, reader.member(member).await?);
    Ok(ownership::for_member(&mut reader, &workload, &member).await?)
}

/// Returns whether a refusal stays: the project no longer holds the node, so that later attempts fail, too.
pub fn is_final(refused: &CommandError) -> bool {
    matches!(refused.code(), Code::NodeNotAllocated | Code::NotFound | Code::Forbidden)
}

/// Returns the selected members, each with the unit to read.
fn selected_units<'a>(
    engine: &Engine,
    rows: &'a WorkloadRows,
    selection: &LogSelection,
) -> Result<Vec<(&'a MemberRecord, String)>, CommandError> {
    if !selection.sources.contains(&LogSource::Journal) {
        return Ok(Vec::new());
    }
    let named = selection.members.iter().map(|name| member_named(rows, name).map_err(|error| error.about("member")));
    let members = match selection.members.as_slice() {
        [] => rows.members.iter().collect(),
        _ => named.collect::<Result<Vec<_>, _>>()?,
    };
    let entry = engine.catalog().require(&rows.workload.app)?;
    let unit_of = |member: &MemberRecord| {
        let units = entry.app.units(&member.component_key);
        match &selection.unit {
            Some(unit) => units.into_iter().find(|known| known == unit),
            None => units.into_iter().next(),
        }
    };
    let mut selected: Vec<_> = members.iter().filter_map(|member| Some((*member, unit_of(member)?))).collect();
    selected.sort_by_key(|(member, _)| member.id);
    selected.dedup_by_key(|(member, _)| member.id);
    if let (true, Some(_)) = (selected.is_empty(), &selection.unit) {
        let mut units: Vec<String> = members.iter().flat_map(|member| entry.app.units(&member.component_key)).collect();
        units.sort_unstable();
        units.dedup();
        let detail = format!("these members have only the units {}", units.join(", "));
        return Err(CommandError::new(Code::FieldInvalid, detail).about("unit").then("choose one of these"));
    }
    Ok(selected)
}

fn member_named<'a>(rows: &'a WorkloadRows, name: &str) -> Result<&'a MemberRecord, CommandError> {
    rows.members.iter().find(|row| row.name() == name).ok_or_else(|| {
        CommandError::not_found("member", name)
            .then(format!("see its members: gpuaas workload members {}", rows.workload.name))
    })
}
