//! Pages of lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Entries of the page.
    pub items: Vec<T>,
    /// Value of `cursor` (for events and audit records: of `after`) that returns the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
    /// Total number of entries in each section of the list. Absent if the list has no sections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counts: Option<BTreeMap<String, u64>>,
}

impl<T> List<T> {
    /// Returns a page without counts.
    pub fn new(items: Vec<T>, next_cursor: Option<String>) -> Self {
        Self { items, next_cursor, counts: None }
    }

    /// Returns the same page with counts.
    #[must_use]
    pub fn with_counts(self, counts: BTreeMap<String, u64>) -> Self {
        Self { counts: Some(counts), ..self }
    }
}
