//! TLS handshakes with clients that are not authenticated yet: limited in number, shared fairly among client sites, and cut off when a slow
//! one keeps others waiting.
//!
//! A queued client costs only its connection. The next permit goes to the site with the fewest running handshakes, and there to the newest
//! connection, whose client most likely still waits. When the queue is full, the oldest connection of the site with the most queued ones is
//! dropped; at a site's own limit, that site's oldest.

use std::time::Duration;

use gpuaas_model::PeerSite;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    error::ChannelError,
    handshake_queue::{HandshakeQueue, PREEMPT_AFTER, Permit},
};

/// Longest time for a handshake once it has a permit.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a permit; an agent dials another address after five seconds.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Running and queued handshakes.
#[derive(Default)]
pub(crate) struct Handshakes {
    queue: HandshakeQueue,
}

impl Handshakes {
    /// Runs `handshake` once it has a permit. A handshake slower than [`PREEMPT_AFTER`] is cut off while others wait for its permit.
    pub(crate) async fn run<T>(
        &self,
        from: PeerSite,
        handshake: impl Future<Output = Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let lost = |why: &str| ChannelError::Lost(why.to_owned());
        let permit = self.queue.enter(from, Instant::now());
        let permit = timeout(WAIT_MAX, permit).await.ok().flatten();
        let turn = permit.ok_or_else(|| lost("too many handshakes are waiting"))?;
        let shaken = async {
            tokio::select! {
                shaken = handshake => shaken,
                () = preempted(&turn) => Err(lost("the handshake took too long while others were waiting")),
            }
        };
        timeout(TIMEOUT, shaken).await.unwrap_or_else(|_| Err(lost("the handshake took too long")))
    }
}

/// Returns when others wait for the permit, but not before [`PREEMPT_AFTER`] is over.
async fn preempted(turn: &Permit<'_>) {
    let preempted: &CancellationToken = turn.preempted();
    tokio::select! {
        () = preempted.cancelled() => return,
        () = sleep(PREEMPT_AFTER) => {}
    }
    if !turn.is_wanted() {
        preempted.cancelled().await;
    }
}
