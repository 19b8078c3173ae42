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
