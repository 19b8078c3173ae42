//! Queue of connections that are not authenticated yet: permits and queue slots are shared fairly among the sites they come from.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use gpuaas_model::PeerSite;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::handshakes::PATIENCE;

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
pub(crate) struct Turns(Mutex<Queue>);

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
    under_way: VecDeque<UnderWay>,
    /// Queued connections, oldest first.
    waiting: VecDeque<Waiting>,
}

struct UnderWay {
    number: u64,
    since: Instant,
    displaced: CancellationToken,
}

struct Waiting {
    number: u64,
    /// Dropped when the connection is evicted from the queue.
    turn: oneshot::Sender<CancellationToken>,
}

/// A permit for one handshake; dropping it frees the permit.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    site: PeerSite,
    number: u64,
    displaced: CancellationToken,
}

impl Turns {
    /// Waits for a permit. `None` when this connection was evicted from the full queue.
    pub(crate) async fn enter(&self, site: PeerSite, now: Instant) -> Option<Turn<'_>> {
        let (number, turn) = self.locked(|queue| queue.enter(site, now));
        let mut waits = Waits { turns: self, site, number, turn };
        let displaced = (&mut waits.turn).await.ok()?;
        Some(Turn { turns: self, site, number, displaced })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Turn<'_> {
    /// Cancelled when a queued connection needs this permit and the handshake has run for at least [`PATIENCE`].
    pub(crate) fn displaced(&self) -> &CancellationToken {
        &self.displaced
    }

    /// Returns whether a queued connection could use this permit.
    pub(crate) fn is_wanted(&self) -> bool {
        self.turns.locked(|queue| queue.is_wanted(self.site))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.locked(|queue| queue.leave(self.site, self.number));
    }
}

/// A connection in the queue; dropping it removes it from the queue.
struct Waits<'a> {
    turns: &'a Turns,
    site: PeerSite,
    number: u64,
    turn: oneshot::Receiver<CancellationToken>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let (site, number) = (self.site, self.number);
        self.turns.locked(|queue| {
            queue.forget(site, number);
            if self.turn.try_recv().is_ok() {
                // The permit was granted at the same moment as the wait was given up.
                queue.leave(site, number);
            }
        });
    }
}

impl Queue {
    fn enter(&mut self, site: PeerSite, now: Instant) -> (u64, oneshot::Receiver<CancellationToken>) {
        self.make_room(site);
        self.entered += 1;
        let (turn, waits) = oneshot::channel();
        self.sites.entry(site).or_default().waiting.push_back(Waiting { number: self.entered, turn });
        self.waiting += 1;
        self.hand_out(now);
        if self.waits(site, self.entered) {
            self.displace(site, now);
        }
        (self.entered, waits)
    }

    /// Evicts a queued connection if the queue is full: the oldest of this site if the site's limit is reached, otherwise the oldest of the
    /// site with the most queued connections.
    fn make_room(&mut self, site: PeerSite) {
        let of_site = self.sites.get(&site).map_or(0, |site| site.waiting.len());
        let drops = if of_site >= WAITING_PER_SITE_MAX {
            Some(site)
        } else if self.waiting >= WAITING_MAX {
            self.sites.iter().max_by_key(|(_, site)| site.waiting.len()).map(|(site, _)| *site)
        } else {
            None
        };
        if let Some(oldest) = drops.and_then(|site| self.sites.get_mut(&site)?.waiting.pop_front()) {
            self.waiting -= 1;
            drop(oldest);
        }
    }

    /// Grants free permits: to the site with the fewest running handshakes, and there to the newest connection.
    fn hand_out(&mut self, now: Instant) {
        while self.running < RUNNING_MAX {
            let may = |site: &Site| site.running < RUNNING_PER_SITE_MAX && !site.waiting.is_empty();
            let first = |site: &Site| {
                let newest = site.waiting.back().map_or(0, |waiting| waiting.number);
                (site.running, std::cmp::Reverse(newest))
            };
            let next = self.sites.values_mut().filter(|site| may(site)).min_by_key(|site| first(site));
            let Some((site, Waiting { number, turn })) = next.and_then(|site| {
                let newest = site.waiting.pop_back()?;
                Some((site, newest))
            }) else {
                return;
            };
            self.waiting -= 1;
            let displaced = CancellationToken::new();
            if turn.send(displaced.clone()).is_ok() {
                site.running += 1;
                site.under_way.push_back(UnderWay { number, since: now, displaced });
                self.running += 1;
            }
        }
    }

    /// Displaces the oldest handshake if it has run for [`PATIENCE`]: that of this site if the site's limit is reached, otherwise that of
    /// the site with the most running handshakes.
    fn displace(&mut self, site: PeerSite, now: Instant) {
        let of_site = self.sites.get(&site).map_or(0, |site| site.running);
        let from = match of_site >= RUNNING_PER_SITE_MAX {
            true => self.sites.get_mut(&site),
            false => self.sites.values_mut().max_by_key(|site| site.under_way.len()),
        };
        let Some(from) = from else { return };
        if from.under_way.front().is_some_and(|oldest| now.duration_since(oldest.since) >= PATIENCE)
            && let Some(oldest) = from.under_way.pop_front()
        {
            oldest.displaced.cancel();
        }
    }

    fn is_wanted(&self, site: PeerSite) -> bool {
        let own_wait = self.sites.get(&site).is_some_and(|site| !site.waiting.is_empty());
        own_wait || (self.running >= RUNNING_MAX && self.waiting > 0)
    }

    /// Returns whether connection `number` is still queued; it must be the site's newest.
    fn waits(&self, site: PeerSite, number: u64) -> bool {
        self.sites.get(&site).is_some_and(|site| site.waiting.back().is_some_and(|newest| newest.number == number))
    }

    /// Removes a connection from the queue.
    fn forget(&mut self, site: PeerSite, number: u64) {
        let Some(of_site) = self.sites.get_mut(&site) else { return };
        let before = of_site.waiting.len();
        of_site.waiting.retain(|waiting| waiting.number != number);
        self.waiting -= before - of_site.waiting.len();
        self.tidy(site);
    }

    /// Frees a permit and grants it to the next connection.
    fn leave(&mut self, site: PeerSite, number: u64) {
        let Some(of_site) = self.sites.get_mut(&site) else { return };
        of_site.under_way.retain(|under_way| under_way.number != number);
        of_site.running -= 1;
        self.running -= 1;
        self.hand_out(Instant::now());
        self.tidy(site);
    }

    /// Removes the site's entry once it has neither handshakes nor queued connections.
    fn tidy(&mut self, site: PeerSite) {
        if self.sites.get(&site).is_some_and(|site| site.running == 0 && site.waiting.is_empty()) {
            self.sites.remove(&site);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn site(number: u8) -> PeerSite {
        PeerSite::of([192, 0, 2, number].into())
    }

    /// Takes as many permits of a site as it gets without waiting.
    fn taken(turns: &Turns, of: PeerSite, now: Instant) -> Vec<Turn<'_>> {
        std::iter::from_fn(|| turns.enter(of, now).now_or_never().flatten()).collect()
    }

    #[test]
    fn one_site_never_has_all_places_and_another_gets_one_at_once() {
        let (turns, now) = (Turns::default(), Instant::now());
        let greedy = taken(&turns, site(1), now);
        assert_eq!(greedy.len(), RUNNING_PER_SITE_MAX);
        assert!(turns.enter(site(2), now).now_or_never().flatten().is_some());
        drop(greedy);
        assert!(turns.0.lock().unwrap().sites.is_empty(), "nothing is remembered of who is gone");
    }

    #[test]
    fn the_next_turn_is_of_the_site_with_the_fewest_and_there_of_the_newest() {
        let (turns, now) = (Turns::default(), Instant::now());
        let mut held: Vec<_> = (1..=4).flat_map(|number| taken(&turns, site(number), now)).collect();
        assert_eq!(held.len(), RUNNING_MAX);
        let (mut older, mut newer) = (Box::pin(turns.enter(site(9), now)), Box::pin(turns.enter(site(9), now)));
        assert!((&mut older).now_or_never().is_none() && (&mut newer).now_or_never().is_none());
        // From the site whose permits become free, and newer than both.
        let mut greedy: Vec<_> = (0..100).map(|_| Box::pin(turns.enter(site(4), now))).collect();
        assert!(greedy.iter_mut().all(|waits| waits.now_or_never().is_none()));
        held.pop();
        let newest = (&mut newer).now_or_never().flatten();
        assert!(newest.is_some() && (&mut older).now_or_never().is_none(), "the newest of the site without any");
        held.pop();
        let older = (&mut older).now_or_never().flatten();
        assert!(older.is_some() && greedy.iter_mut().all(|waits| waits.now_or_never().is_none()));
    }

    #[test]
    fn whoever_had_its_time_makes_room_for_one_that_waits_and_nobody_else_does() {
        let (turns, now) = (Turns::default(), Instant::now());
        let greedy: Vec<_> = (1..=4).flat_map(|number| taken(&turns, site(number), now)).collect();
        let displaced = || greedy.iter().filter(|turn| turn.displaced().is_cancelled()).count();
        let mut early = Box::pin(turns.enter(site(9), now + PATIENCE / 2));
        assert!((&mut early).now_or_never().is_none());
        assert_eq!(displaced(), 0, "they had no time yet, and see for themselves when they had");
        assert!(greedy[0].is_wanted());
        let mut late = Box::pin(turns.enter(site(9), now + PATIENCE));
        assert!((&mut late).now_or_never().is_none());
        assert_eq!(displaced(), 1);
        drop((early, late));
        assert!(!greedy[0].is_wanted(), "those who gave up want nothing");
    }

    #[test]
    fn where_there_is_no_room_to_wait_the_oldest_of_the_greediest_goes() {
        let (turns, now) = (Turns::default(), Instant::now());
        let _held: Vec<_> = (1..=4).flat_map(|number| taken(&turns, site(number), now)).collect();
        let mut crowd: Vec<_> = (0..WAITING_PER_SITE_MAX + 1).map(|_| Box::pin(turns.enter(site(5), now))).collect();
        assert!(crowd.iter_mut().all(|waits| waits.now_or_never().is_none()));
        assert!(matches!((&mut crowd[0]).now_or_never(), Some(None)), "it has its share of the room");
        assert!((&mut crowd[1]).now_or_never().is_none());
        let mut others: Vec<_> = (0..WAITING_MAX - WAITING_PER_SITE_MAX + 1)
            .map(|number| Box::pin(turns.enter(site(u8::try_from(6 + number % 200).unwrap()), now)))
            .collect();
        assert!(others.iter_mut().all(|waits| waits.now_or_never().is_none()));
        assert!(matches!((&mut crowd[1]).now_or_never(), Some(None)), "the greediest makes room for the others");
        drop((crowd, others));
        assert_eq!(turns.0.lock().unwrap().waiting, 0);
    }

    #[test]
    fn a_turn_that_comes_to_one_who_gave_up_goes_on_to_the_next() {
        let (turns, now) = (Turns::default(), Instant::now());
        let mut held = taken(&turns, site(1), now);
        let mut first = Box::pin(turns.enter(site(1), now));
        let mut second = Box::pin(turns.enter(site(1), now));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        held.pop();
        drop(second);
        assert!(first.now_or_never().flatten().is_some(), "the place is lost");
    }
}
