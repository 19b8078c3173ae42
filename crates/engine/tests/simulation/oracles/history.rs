//! Checks that every audit record deleted from the database is in an archive exactly once, and that nothing still needed was deleted.

use std::sync::Arc;

use gpuaas_model::{ArchiveKind, Lifecycle};
use gpuaas_store::{AuditFilter, AuditRecord, Page, Reader, StoreError, WorkloadFilter};
use serde_json::Value;

use super::Oracle;
use crate::simulation::Simulation;

/// Judges a seed with a short retention of history.
pub(crate) async fn check(simulation: &Arc<Simulation>) -> Result<(), StoreError> {
    let mut reader = simulation.store.read().await?;
    check_audit(simulation, &mut reader).await?;
    for task in reader.all_open_tasks().await? {
        if let Some(operation) = task.operation
            && reader.operation(operation).await.is_err()
        {
            simulation.report_violation(
                Oracle::History,
                format!("task {} is open, and its operation {operation} was deleted", task.id),
            );
        }
    }
    for operation in reader.open_operations().await? {
        if reader.steps_of(operation.id).await?.is_empty() {
            simulation
                .report_violation(Oracle::History, format!("operation {} is open and has no steps", operation.id));
        }
    }
    for workload in reader.workloads(&WorkloadFilter::default()).await? {
        if workload.lifecycle != Lifecycle::Decommissioned && reader.newest_operation(workload.id).await?.is_none() {
            simulation
                .report_violation(Oracle::History, format!("the newest operation of {} was deleted", workload.name));
        }
    }
    Ok(())
}

/// Checks that audit sequence numbers start at 1 and continue from the archives into the database without a gap. A record may be in
/// both.
async fn check_audit(simulation: &Arc<Simulation>, reader: &mut Reader) -> Result<(), StoreError> {
    let mut archived: Vec<u64> = Vec::new();
    for archive in reader.archives(Some(ArchiveKind::Audit), &Page::default()).await? {
        simulation.count("archives of the audit");
        let Some(lines) = simulation.archive_file(&archive.sha256) else {
            simulation.report_violation(Oracle::History, format!("archive {} has no file", archive.id));
            continue;
        };
        let lines = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        archived.extend(lines.filter_map(|line| line["audit"]["sequence"].as_u64()));
    }
    let last = archived.len() as u64;
    if archived != (1..=last).collect::<Vec<_>>() {
        simulation.report_violation(Oracle::History, format!("archives hold the audit's numbers {archived:?}"));
    }
    let mut left: Vec<AuditRecord> = Vec::new();
    loop {
        let after = left.last().map_or(0, |record| record.sequence);
        let page = reader.audits(&AuditFilter { after, ..AuditFilter::default() }).await?;
        if page.is_empty() {
            break;
        }
        left.extend(page);
    }
    let first = left.first().map_or(0, |record| record.sequence);
    let follows = left.windows(2).all(|two| two[1].sequence == two[0].sequence + 1);
    if !(1..=last + 1).contains(&first) || !follows {
        simulation.report_violation(
            Oracle::History,
            format!("the audit continues with {first} after {last} archived records"),
        );
    }
    Ok(())
}
