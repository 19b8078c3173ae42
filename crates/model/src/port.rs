//! The sources of everything unrepeatable. Planner, engine, channel and the agent's runner take them as parameters, so that a simulation
//! with a seeded clock, seeded bytes and its own order of things replays exactly.

use std::{pin::Pin, time::Duration};

use crate::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// The present moment; may jump when the machine's clock is set.
    fn now(&self) -> Timestamp;
}

/// Yields bytes that nobody can guess (or, in a simulation, that everybody can repeat).
pub trait Entropy: Send + Sync {
    /// Fills `bytes` entirely.
    fn fill(&self, bytes: &mut [u8]);
}

/// Runs and delays futures. The real one is tokio's; a simulation has its own.
pub trait Runtime: Send + Sync {
    /// Runs `future` beside the caller; a panic in it ends it alone.
    fn spawn(&self, name: &'static str, future: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Time since some fixed moment, never going back: for measuring how long something took.
    fn elapsed(&self) -> Duration;

    /// Completes at `at`, or at once when that is past.
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A number in `0..bound`, for jitter: not uniform to the last bit, and need not be.
impl dyn Entropy + '_ {
    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }
}
