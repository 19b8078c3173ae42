//! Preconditions on an object's revision (`If-Match`).

use gpuaas_model::Code;
use gpuaas_store::{AllocationRecord, NodeRecord, WorkloadRecord};
use uuid::Uuid;

use crate::error::CommandError;

/// A precondition on the object that a command changes, compared within the transaction of the change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No precondition.
    #[default]
    Any,
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

impl Precondition {
    /// Refuses with `precondition_failed` if the present revision of the object is not one of those the caller requires.
    pub fn check(&self, object: impl std::fmt::Display, present: impl Into<Revision>) -> Result<(), CommandError> {
        match self {
            Self::Any => Ok(()),
            Self::Revisions(seen) if seen.contains(&present.into()) => Ok(()),
            Self::Revisions(_) => {
                let detail = format!("{object} has changed since its ETag was read");
                Err(CommandError::new(Code::PreconditionFailed, detail)
                    .about("If-Match")
                    .then("read it again, then retry with its present ETag (show --etag)"))
            }
        }
    }

    /// Checks a workload. A quiet revision ([`WorkloadRecord::matches_revision`]) counts as the present one: a reconciliation of the platform
    /// changes nothing that a person decides on, and must not make a person's request fail.
    pub(crate) fn check_workload(&self, workload: &WorkloadRecord) -> Result<(), CommandError> {
        let is_as_seen =
            |seen: &Revision| seen.object == workload.id.as_uuid() && workload.matches_revision(seen.number);
        match self {
            Self::Revisions(seen) if seen.iter().any(is_as_seen) => Ok(()),
            Self::Any | Self::Revisions(_) => self.check(&workload.name, workload),
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Coded;

    use super::*;

    #[test]
    fn precondition_holds_at_the_present_revision_only() {
        let at = |object, number| Revision { object: Uuid::from_u128(object), number };
        assert!(Precondition::Any.check("gpu-01", at(1, 7)).is_ok());
        assert!(Precondition::Revisions(vec![at(1, 3), at(1, 7)]).check("gpu-01", at(1, 7)).is_ok());
        for outdated in [vec![at(1, 6), at(1, 8)], vec![at(2, 7)], vec![]] {
            let refused = Precondition::Revisions(outdated).check("gpu-01", at(1, 7)).expect_err("it changed");
            assert_eq!((refused.code(), refused.field().as_deref()), (Code::PreconditionFailed, Some("If-Match")));
        }
    }
}
