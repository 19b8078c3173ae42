//! Checks of a scenario, printed as they run, and counted.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use anyhow::Context;

/// Number of checks of this process that passed.
static PASSED: AtomicU32 = AtomicU32::new(0);

/// Runs one check, prints its duration, and returns its result.
pub(crate) fn check<T>(what: &str, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let began = Instant::now();
    let found = run().with_context(|| what.to_owned())?;
    println!("  ✓ {what:<84} {:>7} ms", began.elapsed().as_millis());
    count(1);
    Ok(found)
}

/// Adds tests that another program ran and that passed.
pub(super) fn count(passed: u32) {
    PASSED.fetch_add(passed, Ordering::Relaxed);
}

/// Returns the number of checks that passed.
pub(super) fn passed() -> u32 {
    PASSED.load(Ordering::Relaxed)
}
