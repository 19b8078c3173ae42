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
mod tests {
    use gpuaas_model::{NodeId, ReplicaId, Timestamp};

    use super::*;

    fn session(number: u128) -> SessionRecord {
        let id = Uuid::from_u128(number);
        SessionRecord {
            node: NodeId::from_uuid(id),
            connection: id,
            instance: String::new(),
            replica: ReplicaId::from_uuid(id),
            address: None,
            since: Timestamp::from_millis(0),
            key_set_version: 0,
            keys_given_at: None,
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn due(deliveries: &KeyDeliveries, now: u64) -> (usize, Duration) {
        let (due, next) = deliveries.due(vec![session(1), session(2)], seconds(now));
        (due.len(), next)
    }

    #[test]
    fn refused_keys_are_sent_again_with_growing_delay() {
        let deliveries = KeyDeliveries::default();
        assert_eq!(due(&deliveries, 0).0, 2);
        assert_eq!(due(&deliveries, 5).0, 0, "both deliveries are under way");
        let slow = session(1).connection;
        let mut now = 5;
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            deliveries.ended(slow, false, seconds(now));
            assert_eq!(due(&deliveries, now), (0, seconds(wait)));
            now += wait;
            assert_eq!(due(&deliveries, now).0, 1);
        }
        deliveries.ended(slow, true, seconds(now));
        assert_eq!(due(&deliveries, now).0, 1, "newer keys are sent at once after a success");
    }

    #[test]
    fn up_to_date_connection_is_removed() {
        let deliveries = KeyDeliveries::default();
        deliveries.due(vec![session(1)], seconds(0));
        deliveries.ended(session(1).connection, false, seconds(0));
        deliveries.due(Vec::new(), seconds(0));
        assert_eq!(deliveries.due(vec![session(1)], seconds(0)).0.len(), 1);
    }

    #[test]
    fn unfinished_delivery_is_repeated_after_its_time_limit() {
        let deliveries = KeyDeliveries::default();
        assert_eq!((due(&deliveries, 0).0, due(&deliveries, 119).0, due(&deliveries, 120).0), (2, 0, 2));
    }
}
