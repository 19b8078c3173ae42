//! What a caller last saw of an object, where it asks that nothing has changed since.

use gpuaas_model::Code;
use gpuaas_store::{AllocationRecord, NodeRecord, WorkloadRecord};
use uuid::Uuid;

use crate::error::CommandError;

/// What a caller last saw of an object, where it asks that nothing has changed since. Compared in the transaction of the change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// It does not matter.
    #[default]
    Whatever,
    /// One of these. None of them is a tag that was never ours.
    Revisions(Vec<Revision>),
}

/// An object at one moment of its life. Its id is a part of that: a name may be another object's by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Which object.
    pub object: Uuid,
    /// The revision of its row.
    pub number: u64,
}

impl From<&NodeRecord> for Revision {
    fn from(node: &NodeRecord) -> Self {
        Self { object: node.id.as_uuid(), number: node.generation }
    }
}

impl From<&AllocationRecord> for Revision {
    fn from(allocation: &AllocationRecord) -> Self {
        Self { object: allocation.id.as_uuid(), number: allocation.generation }
    }
}

impl From<&WorkloadRecord> for Revision {
    fn from(workload: &WorkloadRecord) -> Self {
        Self { object: workload.id.as_uuid(), number: workload.revision }
    }
}

impl Seen {
    /// Refuses when the object, which is at that revision now, is no longer as it was seen.
    pub fn must_hold(&self, object: impl std::fmt::Display, present: impl Into<Revision>) -> Result<(), CommandError> {
        match self {
            Self::Whatever => Ok(()),
            Self::Revisions(seen) if seen.contains(&present.into()) => Ok(()),
            Self::Revisions(_) => {
                let detail = format!("{object} is no longer as the ETag in If-Match says");
                Err(CommandError::new(Code::PreconditionFailed, detail)
                    .about("If-Match")
                    .then("look at it again and decide anew"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded;

    use super::*;

    #[test]
    fn what_was_seen_holds_while_its_revision_is_the_present_one() {
        let at = |object, number| Revision { object: Uuid::from_u128(object), number };
        assert!(Seen::Whatever.must_hold("gpu-01", at(1, 7)).is_ok());
        assert!(Seen::Revisions(vec![at(1, 3), at(1, 7)]).must_hold("gpu-01", at(1, 7)).is_ok());
        for gone in [vec![at(1, 6), at(1, 8)], vec![at(2, 7)], vec![]] {
            let refused = Seen::Revisions(gone).must_hold("gpu-01", at(1, 7)).expect_err("it changed");
            assert_eq!((refused.code(), refused.field().as_deref()), (Code::PreconditionFailed, Some("If-Match")));
        }
    }
}
