//! The node's clock.

use std::{
    sync::LazyLock,
    time::{SystemTime, UNIX_EPOCH},
};

use gpuaas_model::Timestamp;

use crate::sandbox;

/// Returns the current time by the node's clock.
pub fn now() -> Timestamp {
    /// Sandboxes share their machine's clock; the environment can add an offset to it for tests.
    static SKEW_MILLIS: LazyLock<i64> = LazyLock::new(|| sandbox::clock_skew_seconds().saturating_mul(1_000));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(*SKEW_MILLIS))
}
