//! Journals of members.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A line of a journal; streamed as one JSON document a line.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When it was written, by the node's clock.
    pub at: String,
    /// The line.
    pub text: String,
}
