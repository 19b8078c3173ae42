//! Ports for everything that is not reproducible: time, randomness and scheduling. The planner, the engine, the channel and the agent's
//! runner take them as parameters, so that a simulation with its own clock, seed and scheduler replays exactly.

use std::{pin::Pin, time::Duration};

use crate::Timestamp;

/// Wall clock.
pub trait Clock: Send + Sync {
    /// Returns the current time; may jump when the machine's clock is set.
    fn now(&self) -> Timestamp;
}

/// Source of random bytes: unpredictable in production, repeatable in a simulation.
pub trait Entropy: Send + Sync {
    /// Fills all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// Spawns and delays futures. Production uses tokio; a simulation has its own runtime.
pub trait Runtime: Send + Sync {
    /// Runs `future` concurrently; a panic ends only that future.
    fn spawn(&self, name: &'static str, future: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Monotonic time since a fixed moment, for measuring durations.
    fn elapsed(&self) -> Duration;

    /// Completes at `at`, or at once if `at` is in the past.
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Random numbers for jitter; the slight bias of the remainder does not matter there.
impl dyn Entropy + '_ {
    /// Returns a number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }
}
