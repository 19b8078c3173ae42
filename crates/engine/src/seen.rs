//! Preconditions on an object's revision (`If-Match`).

use gpuaas_model::Code;
use gpuaas_store::{AllocationRecord, NodeRecord, WorkloadRecord};
use uuid::Uuid;

use crate::error::CommandError;

/// A precondition on the object that a command changes, compared within the transaction of the change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// No precondition.
    #[default]
    Whatever,
    /// The object must be at one of these revisions. The list is empty if the caller sent only unknown tags.
    Revisions(Vec<Revision>),
}

/// An object at one revision. The id is part of it, because a name may belong to another object later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The id of the object.
    pub object: Uuid,
    /// The number of the row's revision.
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
    /// Refuses with `precondition_failed` if the present revision of the object is not one of those the caller requires.
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
