//! How much a node may say. A node is its tenant's: whatever it says is brought within these limits before the control plane keeps it.
//!
//! Prose is cut, with a mark that says so, and loses what is not seen of it. Structure (names, lists, digests) is never cut, because half of it means something else: the
//! whole word is refused.

use std::net::IpAddr;

use gpuaas_model::{CUT_MARK, is_unseen};

/// Longest name or id that a node gives anything, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest sentence of a node, in bytes.
pub const SENTENCE_BYTES_MAX: usize = 1_024;
/// Most entries of a list for which there is no limit of its own.
pub const LIST_MAX: usize = 128;

/// A node said more, or something else, than it may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// More of something than there may be.
    #[error("{what}: {said} are more than {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are, or how many bytes.
        said: usize,
        /// How many there may be.
        max: usize,
    },
    /// It has not the form that it must have.
    #[error("{what} is not of the form that it must have")]
    Form {
        /// What.
        what: &'static str,
    },
}

/// Something that a node says.
pub trait Said: Sized {
    /// The same within the limits, its prose cut; or why it cannot be taken at all.
    fn within_bounds(self) -> Result<Self, OutOfBounds>;
}

/// Cuts prose to `bytes_max`, its mark included, and takes out of it what is no prose: whoever reads it on a terminal or a page sees it as it is,
/// on one line and in its order.
pub fn cut(text: String, bytes_max: usize) -> String {
    // What is far too long is not looked through.
    let mut text = if text.len() > bytes_max.saturating_mul(2) { shortened(text, bytes_max) } else { text };
    if text.contains(is_unseen) {
        let seen = text.chars().filter_map(|character| match character {
            '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some(' '),
            unseen if is_unseen(unseen) => None,
            seen => Some(seen),
        });
        text = seen.collect();
    }
    shortened(text, bytes_max)
}

fn shortened(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(CUT_MARK.len())));
        text.push_str(CUT_MARK);
    }
    text
}

pub(crate) fn at_most(what: &'static str, said: usize, max: usize) -> Result<(), OutOfBounds> {
    if said > max { Err(OutOfBounds::TooMany { what, said, max }) } else { Ok(()) }
}

pub(crate) fn name(what: &'static str, text: &str) -> Result<(), OutOfBounds> {
    at_most(what, text.len(), NAME_BYTES_MAX)?;
    if text.contains(is_unseen) { Err(OutOfBounds::Form { what }) } else { Ok(()) }
}

pub(crate) fn sha256(what: &'static str, text: &str) -> Result<(), OutOfBounds> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_digest { Ok(()) } else { Err(OutOfBounds::Form { what }) }
}

/// Addresses end up in configurations and URLs: they are addresses and nothing else.
pub(crate) fn addresses(what: &'static str, all: &[String]) -> Result<(), OutOfBounds> {
    at_most(what, all.len(), LIST_MAX)?;
    let is_address = |text: &String| text.parse::<IpAddr>().is_ok();
    if all.iter().all(is_address) { Ok(()) } else { Err(OutOfBounds::Form { what }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_cut_at_a_character_and_says_so() {
        assert_eq!(cut("short".into(), 16), "short");
        assert_eq!(cut("u".repeat(33), 32), format!("{}{CUT_MARK}", "u".repeat(32 - CUT_MARK.len())));
        // Half a character is none.
        assert_eq!(cut("ü".repeat(100), 32), format!("{}{CUT_MARK}", "ü".repeat((32 - CUT_MARK.len()) / 2)));
    }

    #[test]
    fn prose_is_one_line_that_commands_no_terminal_and_turns_nothing_around() {
        let said = "up\u{1b}[2J\u{0}\u{7f}\n12:00 \u{202e}nimda\u{2066}\tready\r\n".to_owned();
        assert_eq!(cut(said, 64), "up[2J 12:00 nimda ready  ");
        assert_eq!(cut("\u{1b}".repeat(60), 64), "");
        assert!(cut("\n".repeat(1_000), 64).ends_with(CUT_MARK));
        assert_eq!(cut("ü 日本 \u{1f600}".to_owned(), 64), "ü 日本 \u{1f600}");
        for unseen in ["a\u{1b}b", "a\u{202e}b"] {
            assert!(name("a name", unseen).is_err());
        }
    }
}
