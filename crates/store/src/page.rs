//! Pages of lists: ids sort by time, so the last id of a page is where the next begins.

use crate::query::{Value, text_or_empty};

/// Which part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The last id of the page before; from the start when absent.
    pub after: Option<String>,
    /// At most so many; bounded by [`Page::LIMIT_MAX`].
    pub limit: Option<u32>,
}

impl Page {
    /// Most records of one page.
    pub const LIMIT_MAX: u32 = 1_000;

    pub(crate) fn after(&self) -> Value {
        text_or_empty(self.after.as_ref())
    }

    pub(crate) fn limit(&self) -> Value {
        Value::Int(i64::from(self.bounded()))
    }

    /// At most so many records.
    pub(crate) fn size(&self) -> usize {
        self.bounded() as usize
    }

    fn bounded(&self) -> u32 {
        self.limit.unwrap_or(Self::LIMIT_MAX).clamp(1, Self::LIMIT_MAX)
    }
}
