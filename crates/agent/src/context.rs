//! What a handler works with.

use std::sync::Arc;

use gpuaas_host::{Host, HostError};
use gpuaas_model::{Code, Timestamp};
use gpuaas_wire::task::{TaskFailure, TaskProgress};
use tokio_util::sync::CancellationToken;

use crate::{clock::now, fetch::Fetch};

/// What a handler works with. Effects go through `host` alone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) fetch: Arc<Fetch>,
    pub(crate) cancel: CancellationToken,
    /// By when the task must have ended.
    pub(crate) deadline: Timestamp,
    pub(crate) progress: Arc<dyn Fn(TaskProgress) + Send + Sync>,
}

impl Context {
    /// Tells what is being done or waited for.
    pub(crate) fn say(&self, text: impl Into<String>) {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(TaskProgress::TEXT_BYTES_MAX));
        (self.progress)(TaskProgress { text, percent: None });
    }

    /// What is left of the task's time.
    pub(crate) fn time_left(&self) -> std::time::Duration {
        self.deadline.since(now())
    }
}

/// A host that refused ends the task with its reason. One that goes down interrupts it: what was done is seen when it is up again.
pub(crate) fn host_failed(error: HostError) -> TaskFailure {
    let code = match &error {
        HostError::InitGone(_) => Code::TaskInterrupted,
        full if full.is_full() => Code::DiskFull,
        _ => Code::HostFailed,
    };
    TaskFailure::new(code, error.to_string())
}
