//! Queue of connections that are not authenticated yet: permits and queue slots are shared fairly among the sites they come from.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::PeerSite;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

/// Time that a handshake gets while others wait for its permit: several times that of a handshake over the slowest link.
pub(crate) const PREEMPT_AFTER: Duration = Duration::from_secs(1);

/// Concurrent handshakes.
pub(crate) const RUNNING_MAX: usize = 256;
/// Concurrent handshakes of one site: a quarter of all, which still reconnects hundreds of one site's nodes per second.
pub(crate) const RUNNING_PER_SITE_MAX: usize = 64;
/// Connections in the queue: enough for a whole fleet that reconnects.
pub(crate) const WAITING_MAX: usize = 8_192;
/// Queued connections of one site: a quarter of all, enough for a fleet of two thousand nodes behind one address.
pub(crate) const WAITING_PER_SITE_MAX: usize = 2_048;

/// Permits for handshakes, and the queue for them.
#[derive(Default)]
pub(crate) struct HandshakeQueue(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    sites: HashMap<PeerSite, Site>,
    running: usize,
    waiting: usize,
    entered: u64,
}

#[derive(Default)]
struct Site {
    /// Permits that are held, including those of displaced handshakes that have not ended yet.
    running: usize,
    /// Running handshakes that are not displaced, oldest first.
    started: VecDeque<Running>,
    /// Queued connections, oldest first.
    waiting: VecDeque<Waiting>,
}

struct Running {
    number: u64,
    since: Instant,
    preempted: CancellationToken,
}

struct Waiting {
    number: u64,
    /// Dropped when the connection is evicted from the queue.
    permit: oneshot::Sender<CancellationToken>,
}

/// A permit for one handshake; dropping it frees the permit.
pub(crate) struct Permit<'a> {
    queue: &'a HandshakeQueue,
    site: PeerSite,
    number: u64,
    preempted: CancellationToken,
}

impl HandshakeQueue {
    /// Waits for a permit. `None` when this connection was evicted from the full queue.
    pub(crate) async fn enter(&self, site: PeerSite, now: Instant) -> Option<Permit<'_>> {
        let (number, permit) = self.locked(|queue| queue.enter(site, now));
        let mut waits = WaitGuard { queue: self, site, number, permit };
        let displaced = (&mut waits.permit).await.ok()?;
        Some(Permit { queue: self, site, number, preempted: displaced })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Permit<'_> {
    /// Cancelled when a queued connection needs this permit and the handshake has run for at least [`PREEMPT_AFTER`].
    pub(crate) fn preempted(&self) -> &CancellationToken {
        &self.preempted
    }

    /// Returns whether a queued connection could use this permit.
    pub(crate) fn is_wanted(&self) -> bool {
        self.queue.locked(|queue| queue.is_wanted(self.site))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.queue.locked(|queue| queue.leave(self.site, self.number));
    }
}

/// A connection in the queue; dropping it removes it from the queue.
struct WaitGuard<'a> {
    queue: &'a HandshakeQueue,
    site: PeerSite,
    number: u64,
    permit: oneshot::Receiver<CancellationToken>,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let (site, number) = (self.site, self.number);
        self.queue.locked(|queue| {
            queue.remove_waiter(site, number);
            if self.permit.try_recv().is_ok() {
                // The permit was granted at the same moment as the wait was given up.
                queue.leave(site, number);
            }
        });
    }
}

impl Queue {
    fn enter(&mut self, site: PeerSite, now: Instant) -> (u64, oneshot::Receiver<CancellationToken>) {
        self.drop_oldest_waiter(site);
        self.entered += 1;
        let (permit, waits) = oneshot::channel();
        self.sites.entry(site).or_default().waiting.push_back(Waiting { number: self.entered, permit });
        self.waiting += 1;
        self.grant(now);
        if self.is_waiting(site, self.entered) {
            self.preempt_oldest(site, now);
        }
        (self.entered, waits)
    }

    /// Evicts a queued connection if the queue is full: the oldest of this site if the site's limit is reached, otherwise the oldest of the
    /// site with the most queued connections.
    fn drop_oldest_waiter(&mut self, site: PeerSite) {
        let of_site = self.sites.get(&site).map_or(0, |site| site.waiting.len());
        let crowded = if of_site >= WAITING_PER_SITE_MAX {
            Some(site)
        } else if self.waiting >= WAITING_MAX {
            self.sites.iter().max_by_key(|(_, site)| site.waiting.len()).map(|(site, _)| *site)
        } else {
            None
        };
        if let Some(oldest) = crowded.and_then(|site| self.sites.get_mut(&site)?.waiting.pop_front()) {
            self.waiting -= 1;
            drop(oldest);
        }
    }

    /// Grants free permits: to the site with the fewest running handshakes, and there to the newest connection.
    fn grant(&mut self, now: Instant) {
        while self.running < RUNNING_MAX {
            let may = |site: &Site| site.running < RUNNING_PER_SITE_MAX && !site.waiting.is_empty();
            let first = |site: &Site| {
                let newest = site.waiting.back().map_or(0, |waiting| waiting.number);
                (site.running, std::cmp::Reverse(newest))
            };
            let next = self.sites.values_mut().filter(|site| may(site)).min_by_key(|site| first(site));
            let Some((site, Waiting { number, permit: turn })) = next.and_then(|site| {
                let newest = site.waiting.pop_back()?;
                Some((site, newest))
            }) else {
                return;
            };
            self.waiting -= 1;
            let displaced = CancellationToken::new();
            if turn.send(displaced.clone()).is_ok() {
                site.running += 1;
                site.started.push_back(Running { number, since: now, preempted: displaced });
                self.running += 1;
            }
        }
    }

    /// Displaces the oldest handshake if it has run for [`PREEMPT_AFTER`]: that of this site if the site's limit is reached, otherwise that of
    /// the site with the most running handshakes.
    fn preempt_oldest(&mut self, site: PeerSite, now: Instant) {
        let of_site = self.sites.get(&site).map_or(0, |site| site.running);
        let from = match of_site >= RUNNING_PER_SITE_MAX {
            true => self.sites.get_mut(&site),
            false => self.sites.values_mut().max_by_key(|site| site.started.len()),
        };
        let Some(from) = from else { return };
        if from.started.front().is_some_and(|oldest| now.duration_since(oldest.since) >= PREEMPT_AFTER)
            && let Some(oldest) = from.started.pop_front()
        {
            oldest.preempted.cancel();
        }
    }

    fn is_wanted(&self, site: PeerSite) -> bool {
        let own_wait = self.sites.get(&site).is_some_and(|site| !site.waiting.is_empty());
        own_wait || (self.running >= RUNNING_MAX && self.waiting > 0)
    }

    /// Returns whether connection `number` is still queued; it must be the site's newest.
    fn is_waiting(&self, site: PeerSite, number: u64) -> bool {
        self.sites.get(&site).is_some_and(|site| site.waiting.back().is_some_and(|newest| newest.number == number))
    }

    /// Removes a connection from the queue.
    fn remove_waiter(&mut self, site: PeerSite, number: u64) {
        let Some(of_site) = self.sites.get_mut(&site) else { return };
        let before = of_site.waiting.len();
        of_site.waiting.retain(|waiting| waiting.number != number);
        self.waiting -= before - of_site.waiting.len();
        self.remove_if_empty(site);
    }

    /// Frees a permit and grants it to the next connection.
    fn leave(&mut self, site: PeerSite, number: u64) {
        let Some(of_site) = self.sites.get_mut(&site) else { return };
        of_site.started.retain(|under_way| under_way.number != number);
        of_site.running -= 1;
        self.running -= 1;
        self.grant(Instant::now());
        self.remove_if_empty(site);
    }

    /// Removes the site's entry once it has neither handshakes nor queued connections.
    fn remove_if_empty(&mut self, site: PeerSite) {
        if self.sites.get(&site).is_some_and(|site| site.running == 0 && site.waiting.is_empty()) {
            self.sites.remove(&site);
        }
    }
}

#[cfg(test)]
mod tests;
