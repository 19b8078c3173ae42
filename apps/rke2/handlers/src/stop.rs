//! `rke2.stop`: stops the unit. RKE2 leaves its control plane and pods running.

use gpuaas_app_rke2_tasks::{Rke2Stop, Rke2Stopped};
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::Changed;
use gpuaas_wire::task::TaskFailure;

/// Stops the unit; a unit that the init does not know counts as stopped.
pub(crate) async fn run(task: Rke2Stop, context: Context) -> Result<Rke2Stopped, TaskFailure> {
    let unit = task.role.unit();
    if context.host.units().unit(unit).await.map_err(host_failed)?.is_none() {
        return Ok(Rke2Stopped { changed: false });
    }
    context.report_progress(format!("stopping {unit}"));
    let changed = context.host.units().stop(unit).await.map_err(host_failed)?;
    Ok(Rke2Stopped { changed: changed == Changed::Yes })
}
