//! Limits how often a unit's reports are delivered: at once for a unit that changes occasionally, less and less often for one that keeps
//! flapping. Each delivery changes rows, publishes an event and may page an operator.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::NodeId;
use tokio::time::Instant;

/// Shortest interval between two deliveries for one unit.
pub(crate) const HEARD_EVERY: Duration = Duration::from_millis(250);
/// Deliveries at that interval, enough for a start or a stop; each further wait is twice the previous one.
const OFTEN: u32 = 8;
/// Longest wait: a unit that keeps flapping is known to be unhealthy, and its recovery is noticed at most a minute late.
const HEARD_AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// A unit without a delivery for this long counts as settled and starts again at the shortest interval.
const RESTED_AFTER: Duration = Duration::from_secs(300);
/// Number of tracked units from which settled ones are removed.
const FORGET_FROM: usize = 4_096;

/// The last delivery of each unit of each node. Outlives connections, so that a node cannot reset the limits by reconnecting.
#[derive(Default)]
pub(crate) struct Rhythms(Mutex<HashMap<(NodeId, String), Rhythm>>);

#[derive(Clone, Copy)]
struct Rhythm {
    heard: u32,
    last: Instant,
}

impl Rhythms {
    /// Returns when a report of the unit that is ready now may be delivered.
    pub(crate) fn due(&self, node: NodeId, unit: &str, now: Instant) -> Instant {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&(node, unit.to_owned()));
        known.filter(|rhythm| !rhythm.rests(now)).map_or(now, |rhythm| rhythm.last + rhythm.wait())
    }

    /// Records a delivery for the unit.
    pub(crate) fn heard(&self, node: NodeId, unit: &str, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= FORGET_FROM {
            all.retain(|_, rhythm| !rhythm.rests(now));
        }
        let rhythm = all.entry((node, unit.to_owned())).or_insert(Rhythm { heard: 0, last: now });
        let heard = if rhythm.rests(now) { 0 } else { rhythm.heard };
        *rhythm = Rhythm { heard: heard.saturating_add(1), last: now };
    }
}

impl Rhythm {
    fn rests(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= RESTED_AFTER
    }

    fn wait(&self) -> Duration {
        let doubled = self.heard.saturating_sub(OFTEN).min(16);
        (HEARD_EVERY * (1 << doubled)).min(HEARD_AT_LEAST_EVERY)
    }
}
