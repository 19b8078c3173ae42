//! What a story holds, said as it goes and counted.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use anyhow::Context;

/// Checks of this process that held.
static HELD: AtomicU32 = AtomicU32::new(0);

/// Checks one thing, says how long it took, and returns what it found.
pub(crate) fn check<T>(what: &str, holds: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let began = Instant::now();
    let found = holds().with_context(|| what.to_owned())?;
    println!("  ✓ {what:<84} {:>7} ms", began.elapsed().as_millis());
    count(1);
    Ok(found)
}

/// Counts tests that somebody else ran, and that passed.
pub(super) fn count(passed: u32) {
    HELD.fetch_add(passed, Ordering::Relaxed);
}

/// How many there were.
pub(super) fn held() -> u32 {
    HELD.load(Ordering::Relaxed)
}
