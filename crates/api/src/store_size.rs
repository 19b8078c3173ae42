//! Measures the size of the store's tables in the background: at most once a minute, and for at most a hundredth of the time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_engine::Engine;
use gpuaas_store::StoreSize;
use tokio::sync::watch;

/// Shortest time between two measurements.
const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Pause after a measurement, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 100;
/// Time that a caller waits for the first measurement.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The latest measurement.
pub(crate) struct StoreSizes {
    newest: watch::Sender<Option<Arc<StoreSize>>>,
    next: Mutex<Next>,
}

/// Schedule of the next measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Due at this process time.
    At(Duration),
    /// A measurement is in progress.
    InProgress,
}

impl Default for StoreSizes {
    fn default() -> Self {
        Self { newest: watch::Sender::new(None), next: Mutex::new(Next::At(Duration::ZERO)) }
    }
}

impl StoreSizes {
    /// Returns the latest measurement and starts another one if it is due. Returns `None` if there is none yet.
    pub(crate) async fn get(self: &Arc<Self>, engine: &Arc<Engine>) -> Option<Arc<StoreSize>> {
        let runtime = &engine.ports().runtime;
        if self.start_if_due(runtime.elapsed()) {
            let (sizes, engine) = (self.clone(), engine.clone());
            runtime.spawn("measuring the store", Box::pin(async move { sizes.measure(&engine).await }));
        }
        let mut newest = self.newest.subscribe();
        let first = newest.wait_for(Option::is_some);
        tokio::select! {
            biased;
            measured = first => measured.ok().and_then(|measured| measured.clone()),
            () = runtime.sleep_until(engine.ports().clock.now().plus(FIRST_WAIT)) => None,
        }
    }

    /// Returns whether the caller has to start a measurement now.
    fn start_if_due(&self, now: Duration) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = matches!(*next, Next::At(at) if at <= now);
        if is_due {
            *next = Next::InProgress;
        }
        is_due
    }

    async fn measure(&self, engine: &Engine) {
        let runtime = &engine.ports().runtime;
        let began = runtime.elapsed();
        match engine.store().measure().await {
            Ok(size) => drop(self.newest.send_replace(Some(Arc::new(size)))),
            Err(error) => tracing::warn!(%error, "the store's tables could not be measured"),
        }
        self.schedule_next(began, runtime.elapsed());
    }

    fn schedule_next(&self, began: Duration, now: Duration) {
        let pause = (now.saturating_sub(began) * PAUSE_FACTOR).max(INTERVAL_MIN);
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Next::At(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_is_measured_once_a_minute_or_less_often_if_slow() {
        let (sizes, at) = (StoreSizes::default(), Duration::from_secs);
        assert!(sizes.start_if_due(at(1)));
        assert!(!sizes.start_if_due(at(500)), "one is in progress");
        sizes.schedule_next(at(1), at(1));
        assert!(!sizes.start_if_due(at(60)) && sizes.start_if_due(at(61)));
        sizes.schedule_next(at(61), at(71));
        assert!(!sizes.start_if_due(at(1_070)) && sizes.start_if_due(at(1_071)));
    }
}
