//! Detects connections that carry no requests, so that they can be closed and free their quota.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// Counter of the requests that a connection carries. Cheap to clone; clones share the counter.
#[derive(Clone, Debug)]
pub struct Idle(watch::Sender<usize>);

/// Guard that a request holds until its response is complete.
#[derive(Debug)]
pub struct BusyGuard(watch::Sender<usize>);

impl Default for Idle {
    /// Starts with no requests.
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Idle {
    /// Counts one more request until the returned guard is dropped.
    pub fn busy(&self) -> BusyGuard {
        self.0.send_modify(|carried| *carried += 1);
        BusyGuard(self.0.clone())
    }

    /// Returns when the connection has carried no request for `long` without interruption.
    pub async fn wait_idle_for(&self, long: Duration) {
        let mut carried = self.0.subscribe();
        // Cannot fail, because `self` holds the sender during this call.
        while carried.wait_for(|carried| *carried == 0).await.is_ok() {
            tokio::select! {
                biased;
                _ = carried.changed() => {}
                () = sleep(long) => return,
            }
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.send_modify(|carried| *carried -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_carries_nothing_is_idle_and_one_that_does_is_not() {
        let (idle, began) = (Idle::default(), Instant::now());
        idle.wait_idle_for(LONG).await;
        assert_eq!(began.elapsed(), LONG);
        let (one, other) = (idle.busy(), idle.busy());
        drop(one);
        assert!(timeout(LONG * 100, idle.wait_idle_for(LONG)).await.is_err(), "one is under way");
        let brief = async {
            sleep(LONG / 2).await;
            drop(other);
            sleep(LONG / 2).await;
            drop(idle.busy());
        };
        let began = Instant::now();
        tokio::join!(brief, idle.wait_idle_for(LONG));
        assert_eq!(began.elapsed(), LONG * 2, "counted from the end of the last");
    }
}
