//! What a thing that has not settled waits for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is awaited, from whom, since when, what was last seen of it, and what to do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// What is awaited: the end of a sentence that begins with "waiting for".
    pub what: String,
    /// Who has to act: `platform`, `node`, `cluster`, `tenant`, `operator` or `controller`.
    #[schema(value_type = crate::schema::WaitingFrom)]
    pub from: String,
    /// Time at which the wait began.
    #[schema(format = DateTime)]
    pub since: String,
    /// Time at which it ends by itself: the next attempt, a deadline or an expiry.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// What was last seen of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence: Option<String>,
    /// Next action.
    pub next: String,
    /// Command that carries out the next action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}
