//! Error responses, as `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Description of a refused or failed request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Path of the page that explains the code, relative to the URL of the control plane.
    #[serde(rename = "type")]
    pub kind: String,
    /// Reason phrase of the HTTP status.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Stable code for programs.
    pub code: String,
    /// Description of the error in one sentence.
    pub detail: String,
    /// Field of the request at fault.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub field: Option<String>,
    /// Next action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// Correlation id of the request, as in logs, events and audit records.
    pub correlation_id: String,
    /// Individual errors of a request that has several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<ProblemReason>,
}

/// One of several errors.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProblemReason {
    /// Field at fault.
    pub field: String,
    /// Stable code of this error.
    pub code: String,
    /// Description of the error.
    pub detail: String,
    /// Next action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}
