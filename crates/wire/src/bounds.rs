//! Limits for data from nodes. A tenant controls its node, so the control plane enforces these limits before it stores any data of a node.
//!
//! Prose is stripped of invisible characters and truncated with a mark. Structured data (names, lists, digests) is refused as a whole,
//! because a part of it would mean something else.

use std::{borrow::Cow, net::IpAddr};

use gpuaas_model::{cut, is_invisible};

/// Maximum length of a name or id from a node, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Maximum length of a sentence from a node, in bytes.
pub const SENTENCE_BYTES_MAX: usize = 1_024;
/// Maximum number of entries in a list without its own limit.
pub const LIST_MAX: usize = 128;

/// Data from a node exceeds a limit or has the wrong form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// There are too many entries or bytes.
    #[error("{what}: {count} exceeds the maximum of {max}")]
    TooMany {
        /// Name of the data.
        what: &'static str,
        /// Actual number of entries or bytes.
        count: usize,
        /// Maximum number of entries or bytes.
        max: usize,
    },
    /// The data has the wrong form.
    #[error("{what} has an invalid format")]
    Form {
        /// Name of the data.
        what: &'static str,
    },
}

/// Data from a node that must be bounded.
pub trait Bounded: Sized {
    /// Returns the data within the limits, with prose truncated, or an error if structured data exceeds them.
    fn within_bounds(self) -> Result<Self, OutOfBounds>;
}

/// Truncates prose to `bytes_max`, including the mark, and makes it one visible line: line breaks and tabs become spaces, other invisible
/// characters are removed. It is therefore safe to show on a terminal or a page.
pub fn one_line(text: String, bytes_max: usize) -> String {
    // Truncates very long text first, to limit the work of the scan.
    let mut text = if text.len() > bytes_max.saturating_mul(2) { cut(&text, bytes_max).into_owned() } else { text };
    if text.contains(is_invisible) {
        let seen = text.chars().filter_map(|character| match character {
            '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some(' '),
            unseen if is_invisible(unseen) => None,
            seen => Some(seen),
        });
        text = seen.collect();
    }
    match cut(&text, bytes_max) {
        Cow::Borrowed(_) => text,
        Cow::Owned(cut) => cut,
    }
}

/// Returns the items within their limits; the caller checks their number.
pub fn bounded_items<T: Bounded>(items: Vec<T>) -> Result<Vec<T>, OutOfBounds> {
    items.into_iter().map(Bounded::within_bounds).collect()
}

/// Implements [`Bounded`] for results that contain only numbers and booleans.
#[macro_export]
macro_rules! always_within_bounds {
    ($($result:ty),*) => {
        $(impl $crate::bounds::Bounded for $result {
            fn within_bounds(self) -> Result<Self, $crate::bounds::OutOfBounds> {
                Ok(self)
            }
        })*
    };
}

/// Refuses more than `max` entries or bytes.
pub fn check_count(what: &'static str, count: usize, max: usize) -> Result<(), OutOfBounds> {
    if count > max { Err(OutOfBounds::TooMany { what, count, max }) } else { Ok(()) }
}

pub(crate) fn check_name(what: &'static str, text: &str) -> Result<(), OutOfBounds> {
    check_count(what, text.len(), NAME_BYTES_MAX)?;
    if text.contains(is_invisible) { Err(OutOfBounds::Form { what }) } else { Ok(()) }
}

/// Accepts only 64 lower-case hex digits.
pub fn check_sha256(what: &'static str, text: &str) -> Result<(), OutOfBounds> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_digest { Ok(()) } else { Err(OutOfBounds::Form { what }) }
}

/// Accepts only IP addresses, because they are inserted into configurations and URLs.
pub(crate) fn check_addresses(what: &'static str, all: &[String]) -> Result<(), OutOfBounds> {
    check_count(what, all.len(), LIST_MAX)?;
    let is_address = |text: &String| text.parse::<IpAddr>().is_ok();
    if all.iter().all(is_address) { Ok(()) } else { Err(OutOfBounds::Form { what }) }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::CUT_MARK;

    use super::*;

    #[test]
    fn long_text_is_truncated_at_a_character_with_a_mark() {
        assert_eq!(one_line("short".into(), 16), "short");
        assert_eq!(one_line("u".repeat(33), 32), format!("{}{CUT_MARK}", "u".repeat(32 - CUT_MARK.len())));
        // A character is never cut in half.
        assert_eq!(one_line("ü".repeat(100), 32), format!("{}{CUT_MARK}", "ü".repeat((32 - CUT_MARK.len()) / 2)));
    }

    #[test]
    fn control_and_direction_characters_are_removed() {
        let text = "up\u{1b}[2J\u{0}\u{7f}\n12:00 \u{202e}nimda\u{2066}\tready\r\n".to_owned();
        assert_eq!(one_line(text, 64), "up[2J 12:00 nimda ready  ");
        assert_eq!(one_line("\u{1b}".repeat(60), 64), "");
        assert!(one_line("\n".repeat(1_000), 64).ends_with(CUT_MARK));
        assert_eq!(one_line("ü 日本 \u{1f600}".to_owned(), 64), "ü 日本 \u{1f600}");
        for unseen in ["a\u{1b}b", "a\u{202e}b"] {
            assert!(check_name("a name", unseen).is_err());
        }
    }
}
