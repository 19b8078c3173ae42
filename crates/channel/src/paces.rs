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
const FORGET_FROM: usize = 4_096;

/// The rate limits of all nodes.
pub(crate) struct Paces {
    pub(crate) connects: Pace,
    pub(crate) channels: Pace,
    pub(crate) renewals: Pace,
}

impl Default for Paces {
    fn default() -> Self {
        Self { connects: Pace::of(CONNECTS), channels: Pace::of(CHANNELS), renewals: Pace::of(RENEWALS) }
    }
}

/// A rate limit per enrollment of a node. Stores for each only the time at which its burst is full again.
pub(crate) struct Pace {
    burst: u32,
    each: Duration,
    rested_at: Mutex<HashMap<(NodeId, u64), Instant>>,
}

impl Pace {
    fn of((burst, each): (u32, Duration)) -> Self {
        Self { burst, each, rested_at: Mutex::default() }
    }

    /// Counts one event and returns true; returns false, without counting it, when the limit is exceeded.
    pub(crate) fn take(&self, identity: &NodeIdentity, now: Instant) -> bool {
        let mut all = self.rested_at.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= FORGET_FROM {
            all.retain(|_, rested_at| *rested_at > now);
        }
        let rested_at = all.entry((identity.node, identity.epoch)).or_insert(now);
        let rests_then = (*rested_at).max(now) + self.each;
        let may = rests_then <= now + self.each * self.burst;
        if may {
            *rested_at = rests_then;
        }
        may
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
    fn a_node_has_its_burst_and_then_its_pace_and_takes_nothing_from_others() {
        let (pace, now) = (Pace::of(RENEWALS), Instant::now());
        let taken = |node: &NodeIdentity, at| (0..100).filter(|_| pace.take(node, at)).count();
        assert_eq!(taken(&identity(1, 1), now), 4);
        assert_eq!(taken(&identity(1, 2), now), 4, "a certificate of an earlier enrollment slows nobody down");
        assert_eq!(taken(&identity(2, 1), now), 4);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(59)), 0);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(61)), 1);
        assert_eq!(taken(&identity(1, 1), now + Duration::from_secs(3_600)), 4, "no more than the burst is saved up");
    }

    #[test]
    fn nodes_that_have_rested_are_forgotten() {
        let (pace, now) = (Pace::of(CONNECTS), Instant::now());
        (0..FORGET_FROM as u128).for_each(|number| assert!(pace.take(&identity(number, 1), now)));
        assert!(pace.take(&identity(1 << 64, 1), now + Duration::from_secs(1)));
        assert_eq!(pace.rested_at.lock().unwrap().len(), 1);
    }
}
