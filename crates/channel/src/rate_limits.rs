//! Rate limits per node: a burst as large as a working node ever needs, then a slow steady rate.

use std::time::Duration;

use gpuaas_model::{NodeId, RateLimiter};
use gpuaas_trust::NodeIdentity;
use tokio::time::Instant;

/// Connections of any kind: a burst of 256, twice the limit of concurrent ones, then 16 per second.
const CONNECTS: (u32, Duration) = (256, Duration::from_micros(62_500));
/// Control connections, each of which writes several rows. An agent in a crash loop is restarted only every few seconds.
const CHANNELS: (u32, Duration) = (32, Duration::from_secs(2));
/// Certificate renewals, each of which costs a signature and a row change. An agent retries a failed renewal after a minute.
const RENEWALS: (u32, Duration) = (4, Duration::from_secs(60));
/// Enrollments with a limit of their own at one time, of nodes that used theirs within the last minutes: far more than a fleet has nodes.
const NODES_MAX: usize = 65_536;

/// The rate limits of all nodes.
pub(crate) struct RateLimits {
    pub(crate) connects: NodeLimiter,
    pub(crate) channels: NodeLimiter,
    pub(crate) renewals: NodeLimiter,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            connects: NodeLimiter::of(CONNECTS),
            channels: NodeLimiter::of(CHANNELS),
            renewals: NodeLimiter::of(RENEWALS),
        }
    }
}

/// A rate limit per enrollment of a node.
pub(crate) struct NodeLimiter {
    limiter: RateLimiter<(NodeId, u64)>,
    started: Instant,
}

impl NodeLimiter {
    fn of((burst, interval): (u32, Duration)) -> Self {
        Self { limiter: RateLimiter::new(interval, interval * burst, NODES_MAX), started: Instant::now() }
    }

    /// Counts one event and returns true; returns false, without counting it, when the limit is exceeded.
    pub(crate) fn try_take(&self, identity: &NodeIdentity, now: Instant) -> bool {
        self.limiter.take(&(identity.node, identity.epoch), now.duration_since(self.started)).is_ok()
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
        let (limiter, now) = (NodeLimiter::of(RENEWALS), Instant::now());
        let taken = |node: &NodeIdentity, at| (0..100).filter(|_| limiter.try_take(node, at)).count();
        assert_eq!(taken(&identity(1, 1), now), 4);
        assert_eq!(taken(&identity(1, 2), now), 4, "an earlier enrollment has its own limit");
        assert_eq!(taken(&identity(2, 1), now), 4);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(59)), 0);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(61)), 1);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(3_600)), 4, "at most the burst accumulates");
    }
}
