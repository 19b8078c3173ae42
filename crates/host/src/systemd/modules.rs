//! Loads kernel modules.

use std::time::Duration;

use crate::{
    error::HostError,
    file::Changed,
    host::{Command, Host},
    survey::{ModuleState, module_state},
};

/// Paths at which distributions keep `modprobe`.
const MODPROBE: [&str; 3] = ["/usr/sbin/modprobe", "/sbin/modprobe", "/usr/bin/modprobe"];
/// Longest time for a load: usually milliseconds, but seconds for a driver that searches for its devices.
const LOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Loads a module with the host's own `modprobe`, unless it is present.
pub(super) async fn load_module(host: &dyn Host, name: &str) -> Result<Changed, HostError> {
    let tree = host.inventory().tree();
    if module_state(&tree, name) == ModuleState::Present {
        return Ok(Changed::No);
    }
    let program = MODPROBE.into_iter().find(|path| tree.own_exists(path)).unwrap_or(MODPROBE[0]);
    let arguments = vec!["--".to_owned(), name.to_owned()];
    let command = Command { program: program.into(), arguments, environment: Vec::new(), timeout: LOAD_TIMEOUT };
    let end = host.run(&command).await?;
    match end.status {
        Some(0) => Ok(Changed::Yes),
        _ => Err(HostError::Program { program: program.into(), message: end.output.trim().to_owned() }),
    }
}
