//! A rate limiter per key, in bounded memory (generic cell rate algorithm).
//!
//! Each key stores one number: the time at which its budget is full again. Keys beyond [`KEYS_MAX`] share one budget; a known key keeps its
//! own, regardless of how many others arrive. The caller supplies the time, as a duration since a fixed instant that never decreases.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Keys that are stored at one time.
const KEYS_MAX: usize = 10_000;
/// Time whose rate may be used in one burst.
const BURST: Duration = Duration::from_secs(4);
/// Interval between searches for keys to forget while the map is full. A search visits every key, so doing it for every request would help
/// an attacker.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A rate limiter per key.
pub(crate) struct Pace<K> {
    /// Time that one event costs.
    each: Duration,
    kept: Mutex<Kept<K>>,
}

struct Kept<K> {
    rested_at: HashMap<K, Duration>,
    /// For all keys that are not stored.
    rest_rested_at: Duration,
    looked_at: Duration,
}

impl<K: Hash + Eq + Clone> Pace<K> {
    /// Allows `pace` events per second, with bursts of the events of [`BURST`].
    pub(crate) fn per_second(pace: NonZeroU32) -> Self {
        let kept = Kept { rested_at: HashMap::new(), rest_rested_at: Duration::ZERO, looked_at: Duration::ZERO };
        Self { each: Duration::from_secs(1) / pace.get(), kept: Mutex::new(kept) }
    }

    /// Counts an event, or returns how long to wait. A refused event is not counted.
    pub(crate) fn take(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.make_room(now);
        let is_known = kept.rested_at.contains_key(key);
        let rested_at = match is_known || kept.rested_at.len() < KEYS_MAX {
            true => kept.rested_at.entry(key.clone()).or_insert(now),
            false => &mut kept.rest_rested_at,
        };
        self.wait(*rested_at, now)?;
        *rested_at = (*rested_at).max(now) + self.each;
        Ok(())
    }

    /// Reverts one counted event.
    pub(crate) fn give_back(&self, key: &K) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rested_at) = kept.rested_at.get_mut(key) {
            *rested_at = rested_at.saturating_sub(self.each);
        }
    }

    /// Returns whether the key is stored, as every counted key is unless the map was full.
    pub(crate) fn knows<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).rested_at.contains_key(key)
    }

    /// Returns the result of [`Pace::take`] without counting.
    pub(crate) fn look<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Duration) -> Result<(), Duration>
    where
        K: Borrow<Q>,
    {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let rested_at = kept.rested_at.get(key).copied();
        let beyond = || if kept.rested_at.len() < KEYS_MAX { now } else { kept.rest_rested_at };
        self.wait(rested_at.unwrap_or_else(beyond), now)
    }

    fn wait(&self, rested_at: Duration, now: Duration) -> Result<(), Duration> {
        let earliest = (rested_at.max(now) + self.each).saturating_sub(BURST);
        if earliest > now { Err(earliest - now) } else { Ok(()) }
    }
}

impl<K: Hash + Eq> Kept<K> {
    /// Forgets keys with a full budget if the map is full: they are equivalent to new ones.
    fn make_room(&mut self, now: Duration) {
        if self.rested_at.len() >= KEYS_MAX && now >= self.looked_at + LOOK_EVERY {
            self.looked_at = now;
            self.rested_at.retain(|_, rested_at| *rested_at > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: NonZeroU32 = NonZeroU32::MIN;
    const NOW: Duration = Duration::from_secs(1_000);

    fn full() -> Pace<u64> {
        let pace = Pace::per_second(SLOW);
        (1..=KEYS_MAX as u64).for_each(|key| pace.take(&key, NOW).expect("there is room"));
        pace
    }

    #[test]
    fn a_key_is_held_to_its_pace_and_others_are_not() {
        let pace: Pace<u64> = Pace::per_second(SLOW);
        assert!((0..4).all(|_| pace.take(&1, NOW).is_ok()), "four seconds of it at once");
        assert_eq!(pace.take(&1, NOW), Err(Duration::from_secs(1)));
        assert!(pace.take(&2, NOW).is_ok());
        let later = NOW + Duration::from_secs(1);
        assert!(pace.take(&1, later).is_ok());
        assert_eq!(pace.take(&1, later), Err(Duration::from_secs(1)));
    }

    #[test]
    fn looking_counts_nothing() {
        let pace: Pace<u64> = Pace::per_second(SLOW);
        assert!((0..100).all(|_| pace.look(&1, NOW).is_ok()));
        (0..4).for_each(|_| pace.take(&1, NOW).expect("within the burst"));
        assert_eq!(pace.look(&1, NOW), Err(Duration::from_secs(1)));
    }

    #[test]
    fn a_known_key_keeps_its_own_pace_however_many_others_come() {
        let pace = full();
        let strangers = (1_000_000..1_000_100).filter(|key| pace.take(key, NOW).is_ok()).count();
        assert_eq!(strangers, 4, "whoever is beyond shares one pace");
        assert!(pace.look(&2_000_000, NOW).is_err());
        assert!((0..3).all(|_| pace.take(&1, NOW).is_ok()), "three of its burst are left");
        assert!(pace.take(&1, NOW).is_err());
        assert_eq!(pace.kept.lock().unwrap().rested_at.len(), KEYS_MAX);
    }

    #[test]
    fn who_has_rested_makes_room() {
        let pace = full();
        let later = NOW + Duration::from_secs(2);
        (1_000_000..1_000_100).for_each(|key| pace.take(&key, later).expect("each on its own"));
        assert_eq!(pace.kept.lock().unwrap().rested_at.len(), 100);
    }
}
