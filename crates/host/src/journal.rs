//! Lines of a unit's journal, and where to begin with them.

use gpuaas_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a line stands in a journal, in the words of the host's init: only that init can tell what comes behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

impl Cursor {
    /// The init's words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// The init's words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where to begin in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalFrom {
    /// With the first line that is kept.
    Start,
    /// Behind the line of that cursor.
    After(Cursor),
    /// With the first line at or after that time.
    Since(Timestamp),
    /// With the last so many lines.
    Tail(u32),
}

/// A line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Where it stands.
    pub cursor: Cursor,
    /// When it was written.
    pub at: Timestamp,
    /// The line; one longer than [`JournalLine::TEXT_BYTES_MAX`] is cut to it and says so at its end.
    pub text: String,
}

impl JournalLine {
    /// Longest text kept, in bytes.
    pub const TEXT_BYTES_MAX: usize = 4_096;

    /// The text of a line of `length` bytes of which `start` is the start, or all: bytes that are no text are replaced, and what is not
    /// kept whole says so.
    pub fn bounded(start: &[u8], length: usize) -> String {
        let mut text = String::from_utf8_lossy(start).trim_end().to_owned();
        if length > start.len() || text.len() > Self::TEXT_BYTES_MAX {
            let said = format!(" [cut; the line has {length} bytes]");
            text.truncate(text.floor_char_boundary(Self::TEXT_BYTES_MAX - said.len()));
            text.push_str(&said);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_whole_up_to_its_limit_and_says_where_it_was_cut() {
        let longest = "x".repeat(JournalLine::TEXT_BYTES_MAX);
        assert_eq!(JournalLine::bounded(longest.as_bytes(), longest.len()), longest);
        let cut = JournalLine::bounded(longest.as_bytes(), 5_000);
        assert!(
            cut.len() == JournalLine::TEXT_BYTES_MAX && cut.ends_with("xxx [cut; the line has 5000 bytes]"),
            "{cut}"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_never_exceed_the_limit() {
        assert_eq!(JournalLine::bounded(b"say: \xff\n", 7), "say: \u{fffd}");
        // Every byte becomes three.
        let noise = vec![0xff; JournalLine::TEXT_BYTES_MAX];
        assert!(JournalLine::bounded(&noise, noise.len()).len() <= JournalLine::TEXT_BYTES_MAX);
    }
}
