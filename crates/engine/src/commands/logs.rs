//! Reading a member's journal through the platform: who may, and which one. The lines themselves come from the node and are kept nowhere.

use gpuaas_model::{AuditAction, Code, Permission, WorkloadId};
use serde_json::json;

use super::audit;
use crate::{
    caller::Caller,
    engine::Engine,
    error::CommandError,
    ownership::{self, NodeAccess},
    rows::WorkloadRows,
};

/// A journal that may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSource {
    /// The access to the member's node.
    pub access: NodeAccess,
    /// Of which unit.
    pub unit: String,
}

/// The journal of a member's unit; its first one when none is named. The audit says who read before the first line leaves.
pub async fn open(
    engine: &Engine,
    caller: &Caller,
    id: WorkloadId,
    member: &str,
    unit: Option<&str>,
) -> Result<JournalSource, CommandError> {
    let mut tx = engine.store().begin().await?;
    let rows = WorkloadRows::load(&mut tx, id).await?;
    caller.must_see(rows.workload.project, "workload", id)?;
    caller.must(Permission::LogsRead)?;
    let found = rows.members.iter().find(|row| row.name() == member);
    let found = found.ok_or_else(|| {
        CommandError::not_found("member", member)
            .then(format!("see its members: gpuaas workload members {}", rows.workload.name))
    })?;
    let entry =
        engine.catalog().app(&rows.workload.app).ok_or_else(|| CommandError::not_found("app", &rows.workload.app))?;
    let units = entry.app.units(&found.component_key);
    let chosen = unit.map_or(units.first(), |unit| units.iter().find(|known| *known == unit));
    let unit = chosen.cloned().ok_or_else(|| {
        CommandError::new(Code::FieldInvalid, format!("{member} has the units {}", units.join(", "))).about("unit")
    })?;
    let access = ownership::for_member(&mut tx, &rows.workload, found).await?;
    let source = JournalSource { access, unit };
    let metadata = json!({ "member": member, "node": found.node, "unit": source.unit });
    let target = format!("workload/{}", rows.workload.name);
    audit(&mut tx, caller, AuditAction::LogsRead, target, Some(rows.workload.project), metadata).await?;
    tx.commit().await?;
    Ok(source)
}
