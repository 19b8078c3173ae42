//! Limits how often a unit's reports are delivered: at once for a unit that changes occasionally, less and less often for one that keeps
//! flapping. Each delivery changes rows, publishes an event and may page an operator.
//!
//! No [`gpuaas_model::RateLimiter`]: its rate is constant, while a flapping unit has to wait longer each time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::NodeId;
use tokio::time::Instant;

/// Shortest interval between two deliveries for one unit.
pub(crate) const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// Deliveries at that interval, enough for a start or a stop; each further wait is twice the previous one.
const REPORTS_AT_FULL_RATE: u32 = 8;
/// Longest wait: a unit that keeps flapping is known to be unhealthy, and its recovery is noticed at most a minute late.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// A unit without a delivery for this long counts as settled and starts again at the shortest interval.
const RESET_AFTER: Duration = Duration::from_secs(300);
/// Number of tracked units from which settled ones are removed.
const PRUNE_FROM: usize = 4_096;

/// The last delivery of each unit of each node. Outlives connections, so that a node cannot reset the limits by reconnecting.
#[derive(Default)]
pub(crate) struct ReportThrottle(Mutex<HashMap<(NodeId, String), UnitThrottle>>);

#[derive(Clone, Copy)]
struct UnitThrottle {
    reports: u32,
    last: Instant,
}

impl ReportThrottle {
    /// Returns when a report of the unit that is ready now may be delivered.
    pub(crate) fn next_at(&self, node: NodeId, unit: &str, now: Instant) -> Instant {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&(node, unit.to_owned()));
        known.filter(|throttle| !throttle.is_idle(now)).map_or(now, |throttle| throttle.last + throttle.wait())
    }

    /// Records a delivery for the unit.
    pub(crate) fn record(&self, node: NodeId, unit: &str, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PRUNE_FROM {
            all.retain(|_, throttle| !throttle.is_idle(now));
        }
        let throttle = all.entry((node, unit.to_owned())).or_insert(UnitThrottle { reports: 0, last: now });
        let reports = if throttle.is_idle(now) { 0 } else { throttle.reports };
        *throttle = UnitThrottle { reports: reports.saturating_add(1), last: now };
    }
}

impl UnitThrottle {
    fn is_idle(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= RESET_AFTER
    }

    fn wait(&self) -> Duration {
        let doubled = self.reports.saturating_sub(REPORTS_AT_FULL_RATE).min(16);
        (REPORT_INTERVAL_MIN * (1 << doubled)).min(REPORT_INTERVAL_MAX)
    }
}
