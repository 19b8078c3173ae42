//! Identifiers: one type per kind of object, so that a node id cannot be passed as a workload id.
//!
//! All are UUIDs of version 7: they sort by creation time, which the store's indexes and list cursors rely on.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::port::{Clock, Entropy};

/// A text is not a UUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be a UUID such as 0198c0de-7a3b-7c11-9b54-0242ac120002")]
pub struct IdParseError {
    /// The expected kind of identifier, for example `workload id`.
    pub kind: &'static str,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Generates an identifier from the clock's time and 10 random bytes.
            pub fn generate(clock: &dyn Clock, entropy: &dyn Entropy) -> Self {
                Self(uuid_v7(clock.now().as_millis(), entropy))
            }

            /// Generates an identifier that sorts after `earlier`, also if that one was generated with a clock that is ahead of this one: the
            /// clocks of two replicas differ, and a clock can be set back.
            pub fn generate_after(earlier: Option<Self>, clock: &dyn Clock, entropy: &dyn Entropy) -> Self {
                let now = clock.now().as_millis();
                let first = earlier.map_or(now, |earlier| now.max(millis_of(earlier.0).saturating_add(1)));
                Self(uuid_v7(first, entropy))
            }

            /// Wraps a stored or received UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID.
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self).map_err(|_| IdParseError { kind: $kind })
            }
        }
    )*};
}

ids! {
    /// A tenant's project.
    ProjectId = "project id";
    /// A machine of the platform.
    NodeId = "node id";
    /// One enrollment token of a node.
    EnrollmentId = "enrollment id";
    /// A project's allocation of a node.
    AllocationId = "allocation id";
    /// An imported artifact.
    ArtifactId = "artifact id";
    /// A file of archived history.
    ArchiveId = "archive id";
    /// A deployed app.
    WorkloadId = "workload id";
    /// A workload's member: its part on one node.
    MemberId = "member id";
    /// One durable operation on a workload.
    OperationId = "operation id";
    /// One named step of an operation.
    StepId = "step id";
    /// One signed task; every attempt of a step is a separate task.
    TaskId = "task id";
    /// An API token (not its secret).
    TokenId = "token id";
    /// A service account: a program that acts for a project.
    ServiceAccountId = "service account id";
    /// A session of a browser (not its secret).
    BrowserSessionId = "session id";
    /// A one-time sign-in link (not its code).
    SignInLinkId = "sign-in link id";
    /// A sealed secret.
    SecretId = "secret id";
    /// One delivery of access to a cluster.
    AccessGrantId = "access grant id";
    /// Shared by a client's request and everything that results from it.
    CorrelationId = "correlation id";
    /// One run of a control-plane process, which holds its leases under this id; a restart gets a new one.
    ReplicaId = "replica id";
}

fn uuid_v7(millis: i64, entropy: &dyn Entropy) -> Uuid {
    let mut random = [0_u8; 10];
    entropy.fill(&mut random);
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or(0), &random).into_uuid()
}

/// Returns the time in a UUID of version 7: its first 48 bits.
fn millis_of(uuid: Uuid) -> i64 {
    uuid.as_bytes()[..6].iter().fold(0, |millis, byte| (millis << 8) | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    struct FixedClock(i64);
    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0)
        }
    }
    struct Zeros;
    impl Entropy for Zeros {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }
    struct Ones;
    impl Entropy for Ones {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0xff);
        }
    }

    #[test]
    fn ids_sort_by_creation_time() {
        assert!(NodeId::generate(&FixedClock(1_000), &Zeros) < NodeId::generate(&FixedClock(1_001), &Zeros));
    }

    #[test]
    fn id_sorts_after_an_earlier_one_of_a_clock_that_is_ahead() {
        let earlier = OperationId::generate(&FixedClock(5_000), &Ones);
        let after = |millis| OperationId::generate_after(Some(earlier), &FixedClock(millis), &Zeros);
        for millis in [1_000, 5_000, 9_000] {
            assert!(after(millis) > earlier, "{millis}");
        }
        assert_eq!(after(9_000), OperationId::generate(&FixedClock(9_000), &Zeros));
        assert_eq!(
            OperationId::generate_after(None, &FixedClock(1_000), &Zeros),
            OperationId::generate(&FixedClock(1_000), &Zeros)
        );
    }

    #[test]
    fn ids_round_trip_and_parse_errors_name_the_kind() {
        let id = WorkloadId::generate(&FixedClock(1_000), &Zeros);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("train".parse::<WorkloadId>(), Err(IdParseError { kind: "workload id" }));
    }
}
