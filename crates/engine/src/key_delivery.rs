//! Tracks which connections are being sent the key set, and when a connection that did not accept it is tried again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gpuaas_store::SessionRecord;
use uuid::Uuid;

/// Delay before a connection that did not accept the keys is tried again; doubles with each failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Upper limit of that delay.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);
/// Time after which an unfinished delivery is tried again, because its task panicked.
const DELIVERY_MAX: Duration = Duration::from_secs(120);

/// The connections that lack keys.
#[derive(Default)]
pub(crate) struct KeyDeliveries(Mutex<BTreeMap<Uuid, KeyDelivery>>);

#[derive(Clone, Copy)]
struct KeyDelivery {
    failures: u32,
    due_at: Duration,
}

impl KeyDeliveries {
    /// Returns the connections that are due, which count as being served from now on, and the time until the next one is due.
    pub(crate) fn due(&self, behind: Vec<SessionRecord>, now: Duration) -> (Vec<SessionRecord>, Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|connection, _| behind.iter().any(|session| session.connection == *connection));
        let (mut due, mut next) = (Vec::new(), DELIVERY_MAX);
        for session in behind {
            let delivery = known.entry(session.connection).or_insert(KeyDelivery { failures: 0, due_at: now });
            if delivery.due_at <= now {
                delivery.due_at = now + DELIVERY_MAX;
                due.push(session);
            } else {
                next = next.min(delivery.due_at - now);
            }
        }
        (due, next)
    }

    /// Records the result of a delivery.
    pub(crate) fn ended(&self, connection: Uuid, is_taken: bool, now: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_taken {
            known.remove(&connection);
        } else if let Some(delivery) = known.get_mut(&connection) {
            let wait = AGAIN_AFTER.saturating_mul(2_u32.saturating_pow(delivery.failures)).min(AGAIN_AFTER_MAX);
            *delivery = KeyDelivery { failures: delivery.failures + 1, due_at: now + wait };
        }
    }
}

#[cfg(test)]
mod tests;
