//! Lines of a unit's journal, and positions in it.

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};

/// The position of a line in a journal; opaque to everything but the init that issued it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

impl Cursor {
    /// Wraps a cursor of the init.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the init's cursor.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The position at which to begin in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalFrom {
    /// The first line that is kept.
    Start,
    /// The line after this cursor.
    After(Cursor),
    /// The first line at or after this time.
    Since(Timestamp),
    /// The last lines, this many.
    Tail(u32),
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// The line's position.
    pub cursor: Cursor,
    /// The time at which the line was written.
    pub at: Timestamp,
    /// The text; a line longer than [`JournalLine::TEXT_BYTES_MAX`] is cut to that length and ends with a note of its true length.
    pub text: String,
}

impl JournalLine {
    /// Longest text kept, in bytes.
    pub const TEXT_BYTES_MAX: usize = 4_096;

    /// Returns the text of a line of `length` bytes, of which `start` is the beginning or all. Replaces bytes that are not UTF-8, and notes
    /// at the end if the line was cut.
    pub fn bounded(start: &[u8], length: usize) -> String {
        let mut text = String::from_utf8_lossy(start).trim_end().to_owned();
        if length > start.len() || text.len() > Self::TEXT_BYTES_MAX {
            let suffix = format!(" [cut; the line has {length} bytes]");
            text.truncate(text.floor_char_boundary(Self::TEXT_BYTES_MAX - suffix.len()));
            text.push_str(&suffix);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_kept_up_to_its_limit_and_marked_if_truncated() {
        let longest = "x".repeat(JournalLine::TEXT_BYTES_MAX);
        assert_eq!(JournalLine::bounded(longest.as_bytes(), longest.len()), longest);
        let cut = JournalLine::bounded(longest.as_bytes(), 5_000);
        assert!(
            cut.len() == JournalLine::TEXT_BYTES_MAX && cut.ends_with("xxx [cut; the line has 5000 bytes]"),
            "{cut}"
        );
    }

    #[test]
    fn invalid_utf8_is_replaced_within_the_limit() {
        assert_eq!(JournalLine::bounded(b"say: \xff\n", 7), "say: \u{fffd}");
        // Each byte becomes three.
        let noise = vec![0xff; JournalLine::TEXT_BYTES_MAX];
        assert!(JournalLine::bounded(&noise, noise.len()).len() <= JournalLine::TEXT_BYTES_MAX);
    }
}
