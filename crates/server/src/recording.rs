//! Retries recording facts that only this process knows and that no other source repeats.

use std::time::Duration;

use gpuaas_engine::CommandError;
use gpuaas_model::{Code, Coded};
use tokio_util::sync::CancellationToken;

/// Delay before the first retry; doubled for each further one.
const RETRY: Duration = Duration::from_secs(1);
/// Longest delay between retries, because a full disk stays full for a while.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Calls `record` until it succeeds. Returns `None` if the object no longer exists or this process stops.
pub(crate) async fn record_with_retries<T, F>(stop: &CancellationToken, what: &str, record: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T, CommandError>>,
{
    let mut wait = RETRY;
    loop {
        match record().await {
            Ok(recorded) => return Some(recorded),
            Err(error) if error.code() == Code::NotFound => return None,
            Err(error) => tracing::warn!(what, %error, "could not be recorded yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_record_is_retried_until_it_succeeds() {
        let (stop, tries, began) = (CancellationToken::new(), AtomicUsize::new(0), Instant::now());
        let failing = |code, times| {
            let tries = &tries;
            move || async move {
                let number = tries.fetch_add(1, Ordering::SeqCst);
                if number < times { Err(CommandError::new(code, "on purpose")) } else { Ok(number) }
            }
        };
        assert_eq!(record_with_retries(&stop, "it", failing(Code::Internal, 10)).await, Some(10));
        assert!(began.elapsed() < RETRY_MAX * 10, "{:?}", began.elapsed());
        assert_eq!(record_with_retries(&stop, "it", failing(Code::NotFound, usize::MAX)).await, None);
        let stopped = async {
            tokio::time::sleep(RETRY_MAX * 10).await;
            stop.cancel();
        };
        let (never, ()) =
            tokio::join!(record_with_retries(&stop, "it", failing(Code::Unavailable, usize::MAX)), stopped);
        assert_eq!(never, None);
    }
}
