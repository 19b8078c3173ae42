//! Rate limits per node: a burst as large as a working node ever needs, then a slow steady rate.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::NodeId;
use gpuaas_trust::NodeIdentity;
use tokio::time::Instant;

/// Connections of any kind: a burst of 256, twice the limit of concurrent ones, then 16 per second.
const CONNECTS: (u32, Duration) = (256, Duration::from_micros(62_500));
/// Control connections, each of which writes several rows. An agent in a crash loop is restarted only every few seconds.
const CHANNELS: (u32, Duration) = (32, Duration::from_secs(2));
/// Certificate renewals, each of which costs a signature and a row change. An agent retries a failed renewal after a minute.
const RENEWALS: (u32, Duration) = (4, Duration::from_secs(60));
/// Number of tracked enrollments from which those with a full burst are removed.
const PRUNE_FROM: usize = 4_096;

/// The rate limits of all nodes.
pub(crate) struct RateLimits {
    pub(crate) connects: RateLimiter,
    pub(crate) channels: RateLimiter,
    pub(crate) renewals: RateLimiter,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            connects: RateLimiter::of(CONNECTS),
            channels: RateLimiter::of(CHANNELS),
            renewals: RateLimiter::of(RENEWALS),
        }
    }
}

/// A rate limit per enrollment of a node. Stores for each only the time at which its burst is full again.
pub(crate) struct RateLimiter {
    burst: u32,
    interval: Duration,
    full_at: Mutex<HashMap<(NodeId, u64), Instant>>,
}

impl RateLimiter {
    fn of((burst, each): (u32, Duration)) -> Self {
        Self { burst, interval: each, full_at: Mutex::default() }
    }

    /// Counts one event and returns true; returns false, without counting it, when the limit is exceeded.
    pub(crate) fn try_take(&self, identity: &NodeIdentity, now: Instant) -> bool {
        let mut all = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PRUNE_FROM {
            all.retain(|_, rested_at| *rested_at > now);
        }
        let full_at = all.entry((identity.node, identity.epoch)).or_insert(now);
        let full_then = (*full_at).max(now) + self.interval;
        let is_allowed = full_then <= now + self.interval * self.burst;
        if is_allowed {
            *full_at = full_then;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn identity(number: u128, epoch: u64) -> NodeIdentity {
        NodeIdentity { control_plane: "cp-1".into(), node: NodeId::from_uuid(Uuid::from_u128(number)), epoch }
    }

    #[test]
    fn node_gets_its_burst_then_its_rate_independently_of_others() {
        let (limiter, now) = (RateLimiter::of(RENEWALS), Instant::now());
        let taken = |node: &NodeIdentity, at| (0..100).filter(|_| limiter.try_take(node, at)).count();
        assert_eq!(taken(&identity(1, 1), now), 4);
        assert_eq!(taken(&identity(1, 2), now), 4, "an earlier enrollment has its own limit");
        assert_eq!(taken(&identity(2, 1), now), 4);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(59)), 0);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(61)), 1);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(3_600)), 4, "at most the burst accumulates");
    }

    #[test]
    fn idle_nodes_are_removed() {
        let (limiter, now) = (RateLimiter::of(CONNECTS), Instant::now());
        (0..PRUNE_FROM as u128).for_each(|number| assert!(limiter.try_take(&identity(number, 1), now)));
        assert!(limiter.try_take(&identity(1 << 64, 1), now + Duration::from_secs(1)));
        assert_eq!(limiter.full_at.lock().unwrap().len(), 1);
    }
}
