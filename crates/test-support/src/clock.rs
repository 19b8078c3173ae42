//! Clocks for tests.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::SystemTime,
};

use gpuaas_model::{Clock, Timestamp};

/// The initial time of a [`ManualClock`], unless a test names another.
pub const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// A clock that only moves when a test advances it.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Returns a clock that shows `at`.
    pub fn at(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_millis()))
    }

    /// Moves the clock forward, or sets it back.
    pub fn advance_millis(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(NOW)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set to after 1970");
        Timestamp::from_millis(i64::try_from(since.as_millis()).expect("milliseconds since 1970 fit"))
    }
}
