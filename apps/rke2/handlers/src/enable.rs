//! `rke2.enable`: makes the unit start at boot, and lifts a mask. Starts and stops nothing.

use gpuaas_app_rke2_tasks::{Rke2Enable, Rke2Enabled};
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{Changed, HostError, Units};
use gpuaas_wire::task::TaskFailure;

/// Enables the unit of the role.
pub(crate) async fn run(task: Rke2Enable, context: Context) -> Result<Rke2Enabled, TaskFailure> {
    let changed = unmask_and_enable(context.host.units(), task.role.unit()).await.map_err(host_failed)?;
    Ok(Rke2Enabled { changed: changed == Changed::Yes })
}

/// Lifts a mask, with which the unit could not be enabled, and enables the unit.
pub(crate) async fn unmask_and_enable(units: &dyn Units, unit: &str) -> Result<Changed, HostError> {
    let unmasked = units.unmask(unit).await?;
    Ok(unmasked.or(units.enable(unit).await?))
}
