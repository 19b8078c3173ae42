//! How often a unit is heard: at once where it changes now and then, and ever more rarely where it never comes to rest. Each time is a change
//! of rows, an event, and perhaps a page that somebody is called by.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gpuaas_model::NodeId;
use tokio::time::Instant;

/// Least time between two times that one unit is heard.
pub(crate) const HEARD_EVERY: Duration = Duration::from_millis(250);
/// Times that it is heard as often, as those of a start or a stop; each further wait is twice the one before.
const OFTEN: u32 = 8;
/// Longest wait: a unit that flaps for ever is known to be ill, and known to be well again a minute late.
const HEARD_AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// After so long without a word a unit has come to rest.
const RESTED_AFTER: Duration = Duration::from_secs(300);
/// Units that are remembered before those at rest are forgotten.
const FORGET_FROM: usize = 4_096;

/// When each unit of each node was heard; outlives the connections, which a node may end and begin as it likes.
#[derive(Default)]
pub(crate) struct Rhythms(Mutex<HashMap<(NodeId, String), Rhythm>>);

#[derive(Clone, Copy)]
struct Rhythm {
    heard: u32,
    last: Instant,
}

impl Rhythms {
    /// When a unit that has something to say now is heard.
    pub(crate) fn due(&self, node: NodeId, unit: &str, now: Instant) -> Instant {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&(node, unit.to_owned()));
        known.filter(|rhythm| !rhythm.rests(now)).map_or(now, |rhythm| rhythm.last + rhythm.wait())
    }

    /// A unit was heard.
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
