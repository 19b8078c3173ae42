//! How long each kind of history is kept.

use std::time::Duration;

use gpuaas_model::{ArchiveKind, Timestamp};

/// Shortest and longest interval between two passes.
const PASS_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
/// Upper limit of the grain to which archive limits are rounded: a quiet control plane writes one archive of each kind per day.
const GRAIN_MAX: Duration = Duration::from_secs(24 * 3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A retention time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFor {
    /// Kept this long after its end or occurrence.
    Duration(Duration),
    /// Never deleted.
    Forever,
}

impl KeepFor {
    /// The smallest value that can be set. It cannot affect unfinished work, which is never due.
    pub const MIN: Duration = Duration::from_secs(10);

    /// The time before which an entry is due at `now`; `None` if nothing ever is.
    pub fn due_before(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Duration(age) => {
                let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                Some(Timestamp::from_millis(now.as_millis().saturating_sub(age).max(0)))
            }
            Self::Forever => None,
        }
    }

    /// The same limit for archives, rounded down to a grain of a tenth of the age (1 s to 1 day), so that a repeated pass creates the same
    /// file.
    pub(crate) fn archived_before(self, now: Timestamp) -> Option<Timestamp> {
        let Self::Duration(age) = self else { return None };
        let grain = i64::try_from((age / 10).clamp(PASS_EVERY.0, GRAIN_MAX).as_millis()).unwrap_or(i64::MAX);
        let due = self.due_before(now)?.as_millis();
        Some(Timestamp::from_millis(due - due % grain))
    }
}

/// The retention times of each kind of history in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Operations with their steps and tasks, and tasks outside of operations, after their end. Archived.
    pub operations: KeepFor,
    /// Events. Archived.
    pub events: KeepFor,
    /// Audit records. Archived.
    pub audit: KeepFor,
    /// Stored responses to requests with an idempotency key.
    pub idempotency_keys: KeepFor,
    /// Enrollments, after their use or expiry.
    pub enrollments: KeepFor,
    /// Tokens and access grants, after their expiry or revocation.
    pub ended_credentials: KeepFor,
}

impl Retention {
    /// The default retention times.
    pub const DEFAULT: Self = Self {
        operations: KeepFor::Duration(DAY.saturating_mul(90)),
        events: KeepFor::Duration(DAY.saturating_mul(30)),
        audit: KeepFor::Duration(DAY.saturating_mul(400)),
        idempotency_keys: KeepFor::Duration(DAY),
        enrollments: KeepFor::Duration(DAY.saturating_mul(7)),
        ended_credentials: KeepFor::Duration(DAY.saturating_mul(30)),
    };

    pub(crate) fn of(&self, kind: ArchiveKind) -> KeepFor {
        match kind {
            ArchiveKind::Operations | ArchiveKind::Tasks => self.operations,
            ArchiveKind::Events => self.events,
            ArchiveKind::Audit => self.audit,
        }
    }

    /// The interval between two passes: a tenth of the shortest age, within `PASS_EVERY`.
    pub(crate) fn pass_every(&self) -> Duration {
        let all =
            [self.operations, self.events, self.audit, self.idempotency_keys, self.enrollments, self.ended_credentials];
        let ages = all.iter().filter_map(|keep| match keep {
            KeepFor::Duration(age) => Some(*age / 10),
            KeepFor::Forever => None,
        });
        ages.min().unwrap_or(PASS_EVERY.1).clamp(PASS_EVERY.0, PASS_EVERY.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_is_repeated_within_the_grain_has_the_same_limit() {
        let at = |seconds: i64| Timestamp::from_millis(1_800_000_000_000 + seconds * 1_000);
        let keep = Retention::DEFAULT.events;
        assert_eq!(keep.archived_before(at(0)), keep.archived_before(at(3_600)));
        assert!(keep.archived_before(at(0)) < keep.archived_before(at(24 * 3_600)));
        assert!(keep.archived_before(at(0)) <= keep.due_before(at(0)), "no entry is archived early");
        assert_eq!(KeepFor::Forever.archived_before(at(0)), None);
    }

    #[test]
    fn pass_interval_follows_the_shortest_age() {
        assert_eq!(Retention::DEFAULT.pass_every(), Duration::from_secs(3_600));
        let short = Retention { events: KeepFor::Duration(Duration::from_secs(60)), ..Retention::DEFAULT };
        assert_eq!(short.pass_every(), Duration::from_secs(6));
    }
}
