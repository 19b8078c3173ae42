//! `rke2.stop`: stops the unit. RKE2 leaves its control plane and pods running; `kill_all` ends them as well, with RKE2's own script.
//!
//! Guarantees with `kill_all`: the unit does not start at boot, and on success no process of RKE2 and no listener on its fixed ports is
//! left, whatever the script returned. A repetition runs the script only if something is left for it. Data, configuration and images stay.

use std::time::Duration;

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::{Rke2Role, Rke2Stop, Rke2Stopped};
use gpuaas_handler::{Context, host_failed, settled};
use gpuaas_host::{Changed, Command, HostError};
use gpuaas_model::Code;
use gpuaas_wire::task::TaskFailure;

use crate::{
    survivors::{self, Survivors},
    uninstall::install_root,
};

/// RKE2's script that ends everything and keeps everything that it stored.
const KILLALL: &str = "/usr/local/bin/rke2-killall.sh";
/// Longest time for the script; it was measured at 0.4 s.
const KILLALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Stops the unit, and what it leaves running if the task asks for that.
pub(crate) async fn run(task: Rke2Stop, context: Context) -> Result<Rke2Stopped, TaskFailure> {
    let unit = task.role.unit();
    let mut changed = stop_unit(unit, &context).await?;
    if task.kill_all {
        // The script stops units and disables none.
        changed = changed.or(context.host.units().disable(unit).await.map_err(host_failed)?);
        changed = changed.or(kill_all(task.role, &context).await?);
    }
    Ok(Rke2Stopped { changed: changed == Changed::Yes })
}

/// Stops the unit; a unit that the init does not know counts as stopped.
async fn stop_unit(unit: &str, context: &Context) -> Result<Changed, TaskFailure> {
    if context.host.units().unit(unit).await.map_err(host_failed)?.is_none() {
        return Ok(Changed::No);
    }
    context.report_progress(format!("stopping {unit}"));
    context.host.units().stop(unit).await.map_err(host_failed)
}

/// Runs the script if it has anything to do, and checks that nothing remains.
async fn kill_all(role: Rke2Role, context: &Context) -> Result<Changed, TaskFailure> {
    let has_script = context.host.files().exists(Utf8Path::new(KILLALL)).await.map_err(host_failed)?;
    if !has_script {
        // Without the script nothing is installed. If RKE2's programs run all the same, someone removed it.
        let left = survivors::without_script(context).await?;
        return if left.is_empty() { Ok(Changed::No) } else { Err(remaining(&left, "does not exist")) };
    }
    if !survivors::find(role, context).await?.has_anything() {
        return Ok(Changed::No);
    }
    context.report_progress("ending control plane and pods");
    let outcome = killall(context).await?;
    let left = settled(context, || survivors::find(role, context), |left: &Survivors| !left.running.is_empty()).await?;
    if left.running.is_empty() { Ok(Changed::Yes) } else { Err(remaining(&left.running, &outcome)) }
}

/// Runs the script and returns how it ended, as the end of a sentence about it. Only what remains afterwards decides.
async fn killall(context: &Context) -> Result<String, TaskFailure> {
    let command = Command {
        program: KILLALL.into(),
        arguments: Vec::new(),
        environment: install_root(),
        timeout: KILLALL_TIMEOUT.min(context.time_left()),
    };
    match context.host.run(&command).await {
        Ok(end) => Ok(end.status.map_or("was ended by a signal".to_owned(), |status| format!("ended with {status}"))),
        Err(HostError::Program { message, .. }) => Ok(format!("failed: {message}")),
        Err(error) => Err(host_failed(error)),
    }
}

/// Returns the failure of a stop after which something remains.
fn remaining(left: &[String], outcome: &str) -> TaskFailure {
    /// Most names in the message.
    const NAMED_MAX: usize = 8;
    let more = left.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = left[..left.len().min(NAMED_MAX)].join(", ");
    let message = format!("still running: {named}{more}; {KILLALL} {outcome}");
    TaskFailure::new(Code::HostFailed, gpuaas_model::cut(&message, TaskFailure::MESSAGE_BYTES_MAX))
}
