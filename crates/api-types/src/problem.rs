//! Errors, as `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was refused or failed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Where the code is explained, relative to the documentation's root.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status' own words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable code to branch on.
    pub code: String,
    /// What happened, in one sentence.
    pub detail: String,
    /// The field of the request it is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub field: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// Finds everything about this request in logs, events and audit.
    pub correlation_id: String,
    /// The reasons, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<ProblemReason>,
}

/// One of several reasons.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProblemReason {
    /// The field it is about.
    pub field: String,
    /// Its own stable code.
    pub code: String,
    /// What is wrong.
    pub detail: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}
