//! Journals of members.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A line of a journal. The server streams one JSON document per line.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Time of the entry, by the node's clock.
    #[schema(format = DateTime)]
    pub at: String,
    /// Text of the line.
    pub text: String,
}
