//! Access to a member's journal through the platform. The lines come from the node and are not stored.

use gpuaas_model::{AuditAction, Code, Permission, WorkloadId};
use serde_json::json;

use super::audit_workload;
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    ownership::{self, NodeAccess},
    rows::WorkloadRows,
};

/// A journal that the caller may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSource {
    /// Access to the member's node.
    pub access: NodeAccess,
    /// The systemd unit.
    pub unit: String,
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
    let found = rows.members.iter().find(|row| row.name() == member);
    let found = found.ok_or_else(|| {
        CommandError::not_found("member", member)
            .then(format!("see its members: gpuaas workload members {}", rows.workload.name))
    })?;
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
