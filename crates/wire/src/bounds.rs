//! How much a node may say. A node is its tenant's: whatever it says is brought within these limits before the control plane keeps it.
//!
//! Prose is cut, with a mark that says so. Structure (names, lists, digests) is never cut, because half of it means something else: the
//! whole word is refused.

use std::net::IpAddr;

/// What stands where prose was cut.
pub const CUT_MARK: &str = " …[cut]";
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

/// Cuts prose to `bytes_max`, its mark included.
pub fn cut(mut text: String, bytes_max: usize) -> String {
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
    if text.chars().any(char::is_control) { Err(OutOfBounds::Form { what }) } else { Ok(()) }
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
        let long = cut("ü".repeat(100), 32);
        assert!(long.len() <= 32 && long.ends_with(CUT_MARK), "{long}");
    }
}
