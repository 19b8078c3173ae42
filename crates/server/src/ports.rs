//! The system clock, entropy and runtime: the only place where time and randomness enter the control plane.

use std::{sync::Arc, time::SystemTime};

use futures::{FutureExt, future::BoxFuture};
use gpuaas_engine::port::{Ports, Runtime};
use gpuaas_model::{Clock, Entropy, Timestamp};

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Random bytes from the kernel.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("Linux provides random bytes to every process after its boot");
    }
}

/// The Tokio runtime. A panic in a spawned task ends only that task and is logged.
#[derive(Debug)]
pub struct TokioRuntime {
    began: std::time::Instant,
}

impl Runtime for TokioRuntime {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) {
        let guarded = std::panic::AssertUnwindSafe(future).catch_unwind();
        tokio::spawn(async move {
            if guarded.await.is_err() {
                tracing::error!(
                    task = name,
                    "a background task panicked; only this task ends, and the sweep takes over"
                );
            }
        });
    }

    fn elapsed(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        tokio::time::sleep(at.since(SystemClock.now())).boxed()
    }
}

/// Returns the ports of the real system.
pub fn system() -> Ports {
    Ports {
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        runtime: Arc::new(TokioRuntime { began: std::time::Instant::now() }),
    }
}
