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
const GIVING_MAX: Duration = Duration::from_secs(120);

/// The connections that lack keys.
#[derive(Default)]
pub(crate) struct Givings(Mutex<BTreeMap<Uuid, Giving>>);

#[derive(Clone, Copy)]
struct Giving {
    failures: u32,
    due_at: Duration,
}

impl Givings {
    /// Returns the connections that are due, which count as being served from now on, and the time until the next one is due.
    pub(crate) fn due(&self, behind: Vec<SessionRecord>, now: Duration) -> (Vec<SessionRecord>, Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|connection, _| behind.iter().any(|session| session.connection == *connection));
        let (mut due, mut next) = (Vec::new(), GIVING_MAX);
        for session in behind {
            let giving = known.entry(session.connection).or_insert(Giving { failures: 0, due_at: now });
            if giving.due_at <= now {
                giving.due_at = now + GIVING_MAX;
                due.push(session);
            } else {
                next = next.min(giving.due_at - now);
            }
        }
        (due, next)
    }

    /// Records the result of a delivery.
    pub(crate) fn ended(&self, connection: Uuid, is_taken: bool, now: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_taken {
            known.remove(&connection);
        } else if let Some(giving) = known.get_mut(&connection) {
            let wait = AGAIN_AFTER.saturating_mul(2_u32.saturating_pow(giving.failures)).min(AGAIN_AFTER_MAX);
            *giving = Giving { failures: giving.failures + 1, due_at: now + wait };
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

    fn due(givings: &Givings, now: u64) -> (usize, Duration) {
        let (due, next) = givings.due(vec![session(1), session(2)], seconds(now));
        (due.len(), next)
    }

    #[test]
    fn one_that_does_not_take_the_keys_is_given_them_again_later_and_later_and_the_others_at_once() {
        let givings = Givings::default();
        assert_eq!(due(&givings, 0).0, 2);
        assert_eq!(due(&givings, 5).0, 0, "both are being given them");
        let slow = session(1).connection;
        let mut now = 5;
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            givings.ended(slow, false, seconds(now));
            assert_eq!(due(&givings, now), (0, seconds(wait)));
            now += wait;
            assert_eq!(due(&givings, now).0, 1);
        }
        givings.ended(slow, true, seconds(now));
        assert_eq!(due(&givings, now).0, 1, "it took them, and lacks newer ones: at once");
    }

    #[test]
    fn a_connection_that_lacks_nothing_any_more_is_forgotten() {
        let givings = Givings::default();
        givings.due(vec![session(1)], seconds(0));
        givings.ended(session(1).connection, false, seconds(0));
        givings.due(Vec::new(), seconds(0));
        assert_eq!(givings.due(vec![session(1)], seconds(0)).0.len(), 1);
    }

    #[test]
    fn a_giving_that_nobody_ended_is_begun_again() {
        let givings = Givings::default();
        assert_eq!((due(&givings, 0).0, due(&givings, 119).0, due(&givings, 120).0), (2, 0, 2));
    }
}
