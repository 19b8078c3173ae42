//! Pages of lists. Ids sort by time, so a page begins after the last id of the previous one.

use crate::query::{Value, text_or_empty};

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The last id of the previous page; absent for the first page.
    pub after: Option<String>,
    /// Most records to return; at most [`Page::LIMIT_MAX`], which is also the default.
    pub limit: Option<u32>,
}

impl Page {
    /// Most records on one page.
    pub const LIMIT_MAX: u32 = 1_000;

    pub(crate) fn after(&self) -> Value {
        text_or_empty(self.after.as_ref())
    }

    pub(crate) fn limit(&self) -> Value {
        Value::Int(i64::from(self.bounded()))
    }

    /// Returns the limit as the number of records.
    pub(crate) fn size(&self) -> usize {
        self.bounded() as usize
    }

    fn bounded(&self) -> u32 {
        self.limit.unwrap_or(Self::LIMIT_MAX).clamp(1, Self::LIMIT_MAX)
    }
}
