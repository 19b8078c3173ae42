//! Handshakes of strangers: so many at once, fairly among the sites that they come from, and none so slow that it keeps others out.
//!
//! A stranger costs nothing but a connection until it is its turn. The next turn is of the site that has the fewest handshakes under way, and
//! there of the newest, whose other end most likely still waits. Where there is no room to wait the oldest of the greediest site goes.

use std::time::Duration;

use gpuaas_model::PeerSite;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    channel::ChannelError,
    turns::{Turn, Turns},
};

/// Longest time for a handshake, from its turn on.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a turn: an agent dials elsewhere after five seconds.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a handshake may take while others wait for its place: several times that of one over the slowest link.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Those under way, and those that wait.
#[derive(Default)]
pub(crate) struct Handshakes {
    turns: Turns,
}

impl Handshakes {
    /// Has `handshake` done when it is its turn. One that takes its time loses its place to whoever waits.
    pub(crate) async fn in_turn<T>(
        &self,
        from: PeerSite,
        handshake: impl Future<Output = Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let lost = |why: &str| ChannelError::Lost(why.to_owned());
        let turn = self.turns.enter(from, Instant::now());
        let turn = timeout(WAIT_MAX, turn).await.ok().flatten();
        let turn = turn.ok_or_else(|| lost("too many handshakes wait"))?;
        let shaken = async {
            tokio::select! {
                shaken = handshake => shaken,
                () = pressed(&turn) => Err(lost("the handshake took too long while others waited")),
            }
        };
        timeout(TIMEOUT, shaken).await.unwrap_or_else(|_| Err(lost("the handshake took too long")))
    }
}

/// Patience is over and others wait, or come to wait.
async fn pressed(turn: &Turn<'_>) {
    let displaced: &CancellationToken = turn.displaced();
    tokio::select! {
        () = displaced.cancelled() => return,
        () = sleep(PATIENCE) => {}
    }
    if !turn.is_wanted() {
        displaced.cancelled().await;
    }
}
