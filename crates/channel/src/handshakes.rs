//! Handshakes of strangers: so many at once, each in its turn, and none so slow that it keeps others out.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{sleep, timeout},
};

use crate::channel::ChannelError;

/// Longest time from a connection to the end of its TLS handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a handshake may take while others wait for its place: several times that of one over the slowest link.
const PATIENCE: Duration = Duration::from_secs(1);
/// Handshakes under way at once; more wait for their turn, and nobody waits for them.
pub(crate) const HANDSHAKES_MAX: usize = 256;

/// Those under way.
pub(crate) struct Handshakes {
    places: Semaphore,
    /// How many wait for a place.
    waiting: watch::Sender<usize>,
}

impl Handshakes {
    pub(crate) fn new() -> Self {
        Self { places: Semaphore::new(HANDSHAKES_MAX), waiting: watch::Sender::new(0) }
    }

    /// Has `handshake` done when it is its turn. One that takes its time loses its place to whoever waits.
    pub(crate) async fn in_turn<T>(
        &self,
        handshake: impl Future<Output = Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let too_slow = || Err(ChannelError::Lost("the handshake took too long".to_owned()));
        let turn = async {
            let _place = self.place().await;
            tokio::select! {
                shaken = handshake => shaken,
                () = self.pressed() => too_slow(),
            }
        };
        timeout(TIMEOUT, turn).await.unwrap_or_else(|_| too_slow())
    }

    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Some(place);
        }
        let _waits = Waits::among(&self.waiting);
        // Never closed; and without a place there would only be one more at once.
        self.places.acquire().await.ok()
    }

    /// Patience is over and others wait.
    async fn pressed(&self) {
        sleep(PATIENCE).await;
        // The sender lives as long as this handshake.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}

/// One that waits for a place.
struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    fn among(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}
