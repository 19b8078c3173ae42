//! A wait with a reason, which is reported to people who follow it.

use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{cluster::Progress, error::KubeError};

/// Pause before a watch that ended or broke is opened again.
pub(crate) const REWATCH_AFTER: Duration = Duration::from_millis(250);
/// An unchanged wait is reported again after this time, with its age.
const REPEAT_EVERY: Duration = Duration::from_secs(5);
/// Shortest time between two reports; the newest state is reported. Each report changes rows, and a cluster may change its state at any
/// rate.
const REPORT_EVERY_MIN: Duration = Duration::from_millis(250);

/// A wait: its current reason and its start.
pub(crate) struct Wait<'a> {
    began: Instant,
    reason: Mutex<String>,
    changed: Notify,
    progress: Progress<'a>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(progress: Progress<'a>) -> Self {
        Self { began: Instant::now(), reason: Mutex::new("no answer yet".into()), changed: Notify::new(), progress }
    }

    fn current(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the reason; a changed one is reported.
    pub(crate) fn set_reason(&self, text: String) {
        let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if *reason != text {
            *reason = text;
            self.changed.notify_one();
        }
    }

    /// Reports the reason of the wait: when it changes, and from time to time if it does not.
    pub(crate) async fn report(&self) -> Infallible {
        loop {
            // A timeout is a reason to report too: the age has changed.
            let _ = tokio::time::timeout(REPEAT_EVERY, self.changed.notified()).await;
            (self.progress)(format!("{} ({} s)", self.current(), self.seconds()));
            tokio::time::sleep(REPORT_EVERY_MIN).await;
        }
    }

    /// Returns the age of the wait in seconds.
    pub(crate) fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// Returns the error of a wait that reached its time limit.
    pub(crate) fn timeout_error(&self) -> KubeError {
        KubeError::NotReady { last: self.current(), seconds: self.seconds() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_is_throttled_and_the_last_reason_is_reported() {
        let reported = Mutex::new(Vec::new());
        let progress = |text: String| reported.lock().unwrap().push(text);
        let wait = Wait::new(&progress);
        let flood = async {
            for number in 0..10_000 {
                wait.set_reason(format!("reason {number}"));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(REPORT_EVERY_MIN).await;
        };
        tokio::select! {
            never = wait.report() => match never {},
            () = flood => {}
        }
        let reported = reported.into_inner().unwrap();
        assert!((30..=45).contains(&reported.len()), "{}", reported.len());
        assert!(reported.last().unwrap().starts_with("reason 9999 "), "{reported:?}");
    }
}
