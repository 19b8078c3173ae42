//! Lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// What is on the page.
    pub items: Vec<T>,
    /// Give it as `cursor` (of events and audit records: as `after`) to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
    /// How many there are in all, by what the list is sorted into; absent where nothing is counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counts: Option<BTreeMap<String, u64>>,
}

impl<T> List<T> {
    /// A page without counts.
    pub fn new(items: Vec<T>, next_cursor: Option<String>) -> Self {
        Self { items, next_cursor, counts: None }
    }

    /// The same page with counts.
    #[must_use]
    pub fn with_counts(self, counts: BTreeMap<String, u64>) -> Self {
        Self { counts: Some(counts), ..self }
    }
}
