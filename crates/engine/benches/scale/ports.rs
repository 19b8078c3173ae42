//! Real time, randomness and spawning.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant, SystemTime},
};

use futures::future::BoxFuture;
use gpuaas_engine::port::{Ports, Runtime};
use gpuaas_model::{Clock, Entropy, Timestamp};
use tokio::sync::watch;

/// Number of operation drivers that run now, over all engines of this process.
pub(crate) static DRIVERS: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);

struct Real(Instant);

impl Clock for Real {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).expect("it fits"))
    }
}

impl Entropy for Real {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.chunks_mut(16).for_each(|chunk| chunk.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..chunk.len()]));
    }
}

impl Runtime for Real {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) {
        let counted = if name == "operation driver" { 1 } else { 0 };
        DRIVERS.send_modify(|drivers| *drivers += counted);
        tokio::spawn(async move {
            future.await;
            DRIVERS.send_modify(|drivers| *drivers -= counted);
        });
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }
}

pub(crate) fn ports() -> Ports {
    let real = || Arc::new(Real(Instant::now()));
    Ports { clock: real(), entropy: real(), runtime: real() }
}
