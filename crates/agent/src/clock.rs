//! The node's clock, and the ports for time and spawning that a simulation replaces.

use std::{pin::Pin, sync::Arc, time::Duration};

pub(crate) use gpuaas_host::now;
use gpuaas_model::{Clock, Runtime, Timestamp};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

/// Clock that rustls uses to check the validity of certificates.
#[derive(Debug)]
pub(crate) struct NodeTime;

impl TimeProvider for NodeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(u64::try_from(now().as_millis()).ok()?)))
    }
}

/// The nondeterministic inputs of the runner.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl Ports {
    /// Returns the ports of a real node: the system clock and tokio.
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
