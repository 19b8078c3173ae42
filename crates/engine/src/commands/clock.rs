//! The skew of a node's clock: reported, stored, and a reason to refuse the node. Nothing is ordered by a node's clock.

use gpuaas_model::{Code, EventKind, Timestamp};
use gpuaas_store::{NodeRecord, StoreError, Tx};
use gpuaas_wire::session::CLOCK_SKEW_MAX;
use serde_json::json;

use crate::{error::CommandError, record::platform_event};

/// Returns how far `clock` is ahead of `now`, in whole seconds; negative if it is behind.
pub(super) fn skew_seconds(clock: Timestamp, now: Timestamp) -> i64 {
    clock.as_millis().saturating_sub(now.as_millis()) / 1_000
}

fn is_off(skew_seconds: i64) -> bool {
    skew_seconds.unsigned_abs() > CLOCK_SKEW_MAX.as_secs()
}

/// Refuses a node whose clock is off: it would see its new certificate as invalid, or every task as expired.
pub(super) fn check_skew(clock: Option<Timestamp>, now: Timestamp) -> Result<(), CommandError> {
    let Some(skew) = clock.map(|clock| skew_seconds(clock, now)).filter(|skew| is_off(*skew)) else { return Ok(()) };
    let (by, way) = (skew.unsigned_abs(), if skew > 0 { "ahead of" } else { "behind" });
    let limit = CLOCK_SKEW_MAX.as_secs();
    let detail = format!("this node's clock is {by} s {way} the control plane's, and at most {limit} s are allowed");
    Err(CommandError::new(Code::ClockSkewed, detail).about("clock").then("set the node's clock, for example by NTP"))
}

/// Writes an event if the node's clock left or re-entered the limit.
pub(super) async fn record_change(tx: &mut Tx, node: &NodeRecord, before: Option<i64>) -> Result<(), StoreError> {
    let (was_off, is_off) = (before.is_some_and(is_off), node.clock_skew_seconds.is_some_and(is_off));
    if was_off == is_off {
        return Ok(());
    }
    let data = json!({
        "name": node.name, "clock_skew_seconds": node.clock_skew_seconds, "within_limit": !is_off,
        "limit_seconds": CLOCK_SKEW_MAX.as_secs(),
    });
    platform_event(tx, EventKind::NodeClockSkewChanged, "node", node.id.to_string(), None, data).await
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded;

    use super::*;

    #[test]
    fn clock_skew_above_five_minutes_is_refused_with_its_amount() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let check = |seconds: i64| check_skew(Some(Timestamp::from_millis(now.as_millis() + seconds * 1_000)), now);
        for seconds in [-300, -1, 0, 300] {
            assert_eq!(check(seconds), Ok(()));
        }
        for (seconds, expected) in [(301, "301 s ahead of"), (-301, "301 s behind"), (i64::MIN / 10_000, "s behind")] {
            let refused = check(seconds).unwrap_err();
            assert_eq!(refused.code(), Code::ClockSkewed);
            assert!(refused.to_string().contains(expected), "{refused}");
        }
        assert_eq!(check_skew(None, now), Ok(()), "an older agent reports no clock");
    }
}
