//! A rate limiter per key, in bounded memory (generic cell rate algorithm).
//!
//! Each key stores one number: the time at which its budget is full again. Keys beyond the largest number of keys share one budget; a
//! known key keeps its own, regardless of how many others arrive. The caller supplies the time, as a duration since a fixed instant that
//! never decreases.
//!
//! The crate `governor` computes the same, but cannot revert an event, does not bound the number of its keys, and drops idle ones only on
//! request.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Keys that a limiter of [`RateLimiter::per_second`] stores at one time.
const KEYS_MAX: usize = 10_000;
/// Time whose rate may be used in one burst of [`RateLimiter::per_second`].
const BURST: Duration = Duration::from_secs(4);
/// Interval between searches for keys to forget while the map is full. A search visits every key, so doing it for every request would help
/// an attacker.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A rate limiter per key.
pub struct RateLimiter<K> {
    /// Time that one event costs.
    interval: Duration,
    /// Time whose events may come in one burst.
    burst: Duration,
    keys_max: usize,
    budgets: Mutex<Budgets<K>>,
}

struct Budgets<K> {
    full_at: HashMap<K, Duration>,
    /// For all keys that are not stored.
    shared_full_at: Duration,
    swept_at: Duration,
}

impl<K: Hash + Eq + Clone> RateLimiter<K> {
    /// Allows `rate` events per second, with bursts of the events of four seconds, for up to 10,000 keys.
    pub fn per_second(rate: NonZeroU32) -> Self {
        Self::new(Duration::from_secs(1) / rate.get(), BURST, KEYS_MAX)
    }

    /// Allows one event per `interval`, with bursts of the events of the time `burst`. Stores up to `keys_max` keys.
    pub fn new(interval: Duration, burst: Duration, keys_max: usize) -> Self {
        let kept = Budgets { full_at: HashMap::new(), shared_full_at: Duration::ZERO, swept_at: Duration::ZERO };
        Self { interval, burst, keys_max, budgets: Mutex::new(kept) }
    }

    /// Counts an event, or returns how long to wait. A refused event is not counted.
    pub fn take(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let mut kept = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        kept.sweep(now, self.keys_max);
        let is_known = kept.full_at.contains_key(key);
        let full_at = match is_known || kept.full_at.len() < self.keys_max {
            true => kept.full_at.entry(key.clone()).or_insert(now),
            false => &mut kept.shared_full_at,
        };
        self.wait(*full_at, now)?;
        *full_at = (*full_at).max(now) + self.interval;
        Ok(())
    }

    /// Reverts one counted event.
    pub fn refund(&self, key: &K) {
        let mut kept = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(full_at) = kept.full_at.get_mut(key) {
            *full_at = full_at.saturating_sub(self.interval);
        }
    }

    /// Returns whether the key is stored, as every counted key is unless the map was full.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner).full_at.contains_key(key)
    }

    /// Returns the result of [`Self::take`] without counting.
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q, now: Duration) -> Result<(), Duration>
    where
        K: Borrow<Q>,
    {
        let kept = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = kept.full_at.get(key).copied();
        let beyond = || if kept.full_at.len() < self.keys_max { now } else { kept.shared_full_at };
        self.wait(full_at.unwrap_or_else(beyond), now)
    }

    fn wait(&self, full_at: Duration, now: Duration) -> Result<(), Duration> {
        let earliest = (full_at.max(now) + self.interval).saturating_sub(self.burst);
        if earliest > now { Err(earliest - now) } else { Ok(()) }
    }
}

impl<K: Hash + Eq> Budgets<K> {
    /// Forgets keys with a full budget if the map is full: they are equivalent to new ones.
    fn sweep(&mut self, now: Duration, keys_max: usize) {
        if self.full_at.len() >= keys_max && now >= self.swept_at + SWEEP_INTERVAL {
            self.swept_at = now;
            self.full_at.retain(|_, full_at| *full_at > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: NonZeroU32 = NonZeroU32::MIN;
    const NOW: Duration = Duration::from_secs(1_000);

    fn full_limiter() -> RateLimiter<u64> {
        let limiter = RateLimiter::per_second(SLOW);
        (1..=KEYS_MAX as u64).for_each(|key| limiter.take(&key, NOW).expect("the map is not full"));
        limiter
    }

    #[test]
    fn rate_of_a_key_does_not_limit_others() {
        let limiter: RateLimiter<u64> = RateLimiter::per_second(SLOW);
        assert!((0..4).all(|_| limiter.take(&1, NOW).is_ok()), "a burst of four seconds");
        assert_eq!(limiter.take(&1, NOW), Err(Duration::from_secs(1)));
        assert!(limiter.take(&2, NOW).is_ok());
        let later = NOW + Duration::from_secs(1);
        assert!(limiter.take(&1, later).is_ok());
        assert_eq!(limiter.take(&1, later), Err(Duration::from_secs(1)));
    }

    #[test]
    fn peek_counts_nothing() {
        let limiter: RateLimiter<u64> = RateLimiter::per_second(SLOW);
        assert!((0..100).all(|_| limiter.peek(&1, NOW).is_ok()));
        (0..4).for_each(|_| limiter.take(&1, NOW).expect("within the burst"));
        assert_eq!(limiter.peek(&1, NOW), Err(Duration::from_secs(1)));
    }

    #[test]
    fn stored_key_keeps_its_own_rate_while_the_map_is_full() {
        let limiter = full_limiter();
        let others = (1_000_000..1_000_100).filter(|key| limiter.take(key, NOW).is_ok()).count();
        assert_eq!(others, 4, "keys that are not stored share one rate");
        assert!(limiter.peek(&2_000_000, NOW).is_err());
        assert!((0..3).all(|_| limiter.take(&1, NOW).is_ok()), "three of its burst remain");
        assert!(limiter.take(&1, NOW).is_err());
        assert_eq!(limiter.budgets.lock().unwrap().full_at.len(), KEYS_MAX);
    }

    #[test]
    fn keys_with_a_full_budget_are_dropped_while_the_map_is_full() {
        let limiter = full_limiter();
        let later = NOW + Duration::from_secs(2);
        (1_000_000..1_000_100).for_each(|key| limiter.take(&key, later).expect("each key has its own rate"));
        assert_eq!(limiter.budgets.lock().unwrap().full_at.len(), 100);
    }
}
