//! Retries of changes.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use crate::error::StoreError;

/// Most retries of a change. With the waits below, the last one fails after about a second.
const RETRIES_MAX: usize = 6;
const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Runs a change, from its [`Store::begin`](crate::Store::begin) to its [`Tx::commit`](crate::Tx::commit), and retries
/// it from the start after a conflict or while the database is unreachable: up to six times, with growing and jittered
/// waits. Effects of the change outside of its rows are repeated too. A commit with an unknown outcome is not retried.
pub async fn with_retries<T, F>(change: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let backoff = ExponentialBuilder::default()
        .with_min_delay(WAIT_MIN)
        .with_max_delay(WAIT_MAX)
        .with_max_times(RETRIES_MAX)
        .with_jitter();
    change.retry(backoff).when(StoreError::is_retryable).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn attempts_of(outcome: impl Fn(usize) -> Result<(), StoreError>) -> usize {
        let made = Cell::new(0);
        let _ = with_retries(async || {
            made.set(made.get() + 1);
            outcome(made.get())
        })
        .await;
        made.get()
    }

    #[tokio::test]
    async fn conflict_is_retried_a_limited_number_of_times() {
        assert_eq!(attempts_of(|made| if made < 3 { Err(StoreError::Busy) } else { Ok(()) }).await, 3);
        assert_eq!(attempts_of(|_| Err(StoreError::Busy)).await, RETRIES_MAX + 1);
    }

    #[tokio::test]
    async fn refusal_and_unknown_commit_outcome_are_not_retried() {
        assert_eq!(attempts_of(|_| Err(StoreError::Stale { what: "node" })).await, 1);
        assert_eq!(attempts_of(|_| Err(StoreError::UnknownOutcome("cut".to_owned()))).await, 1);
    }
}
