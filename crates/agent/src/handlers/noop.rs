//! `host.noop`: returns at once.

use gpuaas_handler::Context;
use gpuaas_wire::task::{Noop, NoopDone, TaskFailure};

/// Does nothing.
pub(crate) async fn run(_task: Noop, _context: Context) -> Result<NoopDone, TaskFailure> {
    Ok(NoopDone {})
}
