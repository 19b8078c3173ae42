//! Checks that everything that waits or has failed explains why and names the next action.

use std::sync::Arc;

use gpuaas_engine::waiting::unexplained;
use gpuaas_model::{Timestamp, WorkloadId};
use gpuaas_store::StoreError;

use super::{Oracle, Rows};
use crate::simulation::Simulation;

/// Judges the present rows of a workload. Reads its own rows only, so that it can be called often.
pub(crate) async fn check(simulation: &Arc<Simulation>, workload: WorkloadId) {
    let gaps = async {
        let mut reader = simulation.store.read().await?;
        let (row, members) = (reader.workload(workload).await?, reader.members_of(workload).await?);
        let newest = reader.newest_operation(workload).await?;
        let steps = match &newest {
            Some(operation) => reader.steps_of(operation.id).await?,
            None => Vec::new(),
        };
        Ok::<_, StoreError>(unexplained(&row, &members, newest.as_ref(), &steps, simulation.scheduler.now()))
    };
    match gaps.await {
        Ok(gaps) => gaps.into_iter().for_each(|gap| simulation.report_violation(Oracle::Explained, gap)),
        Err(error) => simulation.report_violation(Oracle::Run, format!("the rows cannot be read: {error}")),
    }
}

/// Judges the rows at the end of a seed.
pub(super) fn check_end(rows: &Rows, now: Timestamp, violations: &mut Vec<String>) {
    let (operation, steps) = rows.operations.last().map(|(operation, steps)| (operation, steps.as_slice())).unzip();
    violations.extend(unexplained(&rows.workload, &rows.members, operation, steps.unwrap_or_default(), now));
}
