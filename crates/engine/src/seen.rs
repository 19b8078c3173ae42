//! What a caller last saw of an object, where it asks that nothing has changed since.

use gpuaas_model::Code;

use crate::error::CommandError;

/// What a caller last saw of an object, where it asks that nothing has changed since. Compared in the transaction of the change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// It does not matter.
    #[default]
    Whatever,
    /// One of these revisions of its row. None of them is a tag that was never ours.
    Revisions(Vec<u64>),
}

impl Seen {
    /// Refuses when the object, of that revision now, is no longer as it was seen.
    pub fn must_hold(&self, object: impl std::fmt::Display, revision: u64) -> Result<(), CommandError> {
        match self {
            Self::Whatever => Ok(()),
            Self::Revisions(seen) if seen.contains(&revision) => Ok(()),
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
        assert!(Seen::Whatever.must_hold("gpu-01", 7).is_ok());
        assert!(Seen::Revisions(vec![3, 7]).must_hold("gpu-01", 7).is_ok());
        for gone in [vec![6, 8], vec![]] {
            let refused = Seen::Revisions(gone).must_hold("gpu-01", 7).expect_err("it changed");
            assert_eq!((refused.code(), refused.field().as_deref()), (Code::PreconditionFailed, Some("If-Match")));
        }
    }
}
