//! `rke2.uninstall`: removes RKE2 by its own script, which kills what still runs and removes itself last.

use std::time::Duration;

use camino::Utf8Path;
use gpuaas_host::Command;
use gpuaas_wire::task::{Rke2Uninstall, Rke2Uninstalled, TaskFailure};

use crate::context::{Context, host_failed};

const SCRIPT: &str = "/usr/local/bin/rke2-uninstall.sh";
/// Longest time for the script; it was measured at 2.3 s.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the script if it is there. Its exit status is reported and not believed: the residue report tells.
pub(crate) async fn run(_task: Rke2Uninstall, context: Context) -> Result<Rke2Uninstalled, TaskFailure> {
    let script = Utf8Path::new(SCRIPT);
    if !context.host.exists(script).await.map_err(host_failed)? {
        return Ok(Rke2Uninstalled { exit_status: None });
    }
    context.say("uninstalling");
    let command = Command { program: script.to_owned(), arguments: Vec::new(), timeout: TIMEOUT };
    let end = context.host.run(&command).await.map_err(host_failed)?;
    context.host.daemon_reload().await.map_err(host_failed)?;
    Ok(Rke2Uninstalled { exit_status: end.status })
}
