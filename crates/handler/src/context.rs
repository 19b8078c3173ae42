//! The context of a running task.

use std::sync::Arc;

use gpuaas_host::{Host, HostError, now};
use gpuaas_model::{Code, Timestamp, cut};
use gpuaas_wire::task::{TaskFailure, TaskProgress};
use tokio_util::sync::CancellationToken;

use crate::control_plane::ControlPlane;

/// The context of a running task. Handlers change the machine only through `host`.
#[derive(Clone)]
pub struct Context {
    /// The machine.
    pub host: Arc<dyn Host>,
    /// The control plane that sent the task.
    pub control_plane: Arc<dyn ControlPlane>,
    /// Cancelled when the task must end early.
    pub cancel: CancellationToken,
    /// Time by which the task must have ended.
    pub deadline: Timestamp,
    /// Accepts progress reports; [`Context::report_progress`] bounds them.
    pub progress: Arc<dyn Fn(TaskProgress) + Send + Sync>,
}

impl Context {
    /// Reports the current activity as a progress line, truncated to `TEXT_BYTES_MAX` bytes.
    pub fn report_progress(&self, text: impl Into<String>) {
        let text = cut(&text.into(), TaskProgress::TEXT_BYTES_MAX).into_owned();
        (self.progress)(TaskProgress { text, percent: None });
    }

    /// Returns the time until the deadline; zero after it.
    pub fn time_left(&self) -> std::time::Duration {
        self.deadline.since(now())
    }
}

/// Maps an error of the host to a task failure. A host that shuts down interrupts the task: the next start of the agent finds what was
/// done.
pub fn host_failed(error: HostError) -> TaskFailure {
    let code = match &error {
        HostError::InitUnreachable(_) => Code::TaskInterrupted,
        full if full.is_full() => Code::DiskFull,
        _ => Code::HostFailed,
    };
    TaskFailure::new(code, error.to_string())
}
