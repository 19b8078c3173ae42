//! Time as the system stores it: milliseconds since the Unix epoch, printed as RFC 3339 in UTC.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A moment with millisecond precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Wraps milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Adds `duration`; saturates at the latest representable moment.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to `self`, or zero if `self` is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    /// Parses RFC 3339; drops what is finer than a millisecond.
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(|at: jiff::Timestamp| Self(at.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_prints_as_rfc_3339_with_milliseconds() {
        assert_eq!(Timestamp::from_millis(1_790_000_000_007).to_string(), "2026-09-21T14:13:20.007Z");
    }

    #[test]
    fn printed_timestamp_is_parsed_and_other_texts_are_refused() {
        let at = Timestamp::from_millis(1_790_000_000_007);
        assert_eq!(at.to_string().parse().ok(), Some(at));
        assert_eq!("2026-09-21T16:13:20.0079+02:00".parse().ok(), Some(at));
        for wrong in ["", "1h", "2026-09-21", "2026-09-21T14:13:20"] {
            assert!(wrong.parse::<Timestamp>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn duration_since_a_later_timestamp_is_zero() {
        let (earlier, later) = (Timestamp::from_millis(5), Timestamp::from_millis(12));
        assert_eq!(later.since(earlier), Duration::from_millis(7));
        assert_eq!(earlier.since(later), Duration::ZERO);
    }
}
