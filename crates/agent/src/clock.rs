//! The node's clock, and what the runner takes of time and spawning: a simulation has its own.

use std::{pin::Pin, sync::Arc, time::Duration};

use gpuaas_model::{Clock, Runtime, Timestamp};

/// Now, by the node's clock.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The unrepeatable, bundled.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl Ports {
    /// The node's clock, and tokio.
    pub(crate) fn of_this_machine() -> Self {
        Self { clock: Arc::new(NodeClock), runtime: Arc::new(TokioRuntime(std::time::Instant::now())) }
    }
}

struct NodeClock;

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        now()
    }
}

struct TokioRuntime(std::time::Instant);

impl Runtime for TokioRuntime {
    fn spawn(&self, _name: &'static str, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(at.since(now())))
    }
}
