//! Waiting for processes and listeners that end a moment after what ended them.

use std::time::Duration;

use gpuaas_wire::task::TaskFailure;
use tokio::time::Instant;

use crate::context::Context;

/// Time for processes and ports to end: the kernel closes the ports of a killed process a moment after the script that killed it has ended,
/// without a signal. Processes and ports that remain longer stay.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Repeats a look at the host while it shows something that `may_end`, for at most 5 s and half of the task's time. Returns the last look.
pub async fn settled<T, F>(
    context: &Context,
    look: impl Fn() -> F,
    may_end: impl Fn(&T) -> bool,
) -> Result<T, TaskFailure>
where
    F: Future<Output = Result<T, TaskFailure>>,
{
    let settle_until = Instant::now() + SETTLE_TIMEOUT.min(context.time_left() / 2);
    loop {
        let seen = look().await?;
        if !may_end(&seen) || Instant::now() >= settle_until {
            return Ok(seen);
        }
        context.report_progress("waiting for processes and listeners to end");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
