//! The two sources of everything unrepeatable. Planner, engine and channel take them as parameters, so that a simulation
//! with a seeded clock and seeded bytes replays exactly.

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

/// A number in `0..bound`, for jitter: not uniform to the last bit, and need not be.
impl dyn Entropy + '_ {
    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }
}
