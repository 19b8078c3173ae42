//! Waiting for what a test cannot await.

use std::time::{Duration, Instant};

/// Longest wait; the awaited event normally takes a fraction of it.
const WAIT_MAX: Duration = Duration::from_secs(90);
/// Interval between two looks: short next to everything that tests wait for, long enough for other tests to run.
const INTERVAL: Duration = Duration::from_millis(10);

/// Waits in real time until `holds` returns true. Panics with the message `failure` after 90 s.
pub async fn eventually(failure: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < WAIT_MAX, "{failure}");
        tokio::time::sleep(INTERVAL).await;
    }
}
