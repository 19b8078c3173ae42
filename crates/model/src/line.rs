//! Free text from callers on one line: token names, reasons, label values, release sources, search texts.
//!
//! A line contains only visible characters: none that is invisible, changes text direction or controls a terminal. Names that become
//! identifiers elsewhere, for example node names, follow the stricter [`crate::Name`].

use std::{borrow::Cow, ops::RangeInclusive};

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, Emoji, GeneralCategory},
};

/// The OpenAPI `format` of every text that a [`Line`] checks.
pub const LINE_FORMAT: &str = "line";

/// Variation selectors choose between the text and the emoji form of the preceding character.
const VARIATION_SELECTORS: RangeInclusive<char> = '\u{fe0e}'..='\u{fe0f}';
/// Encloses the preceding digit in a keycap.
const KEYCAP: char = '\u{20e3}';
/// Looks like a space but is not classified as one.
const BRAILLE_BLANK: char = '\u{2800}';

/// A kind of single-line text with its length limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name of the kind in error messages.
    what: &'static str,
    characters_min: usize,
    characters_max: usize,
}

/// Why a text is not a valid line of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The text is too short or too long.
    #[error("{what} must have {min} to {max} printable characters, not {found}")]
    Length {
        /// The kind of text.
        what: &'static str,
        /// Minimum length in characters.
        min: usize,
        /// Maximum length in characters.
        max: usize,
        /// Actual length in characters.
        found: usize,
    },
    /// The text contains an invisible character.
    #[error(
        "{what} must have only printable characters, but character {position} is U+{:04X}: control, invisible, \
         direction-changing, private-use and unassigned characters are not allowed",
        u32::from(*.character)
    )]
    InvisibleCharacter {
        /// The kind of text.
        what: &'static str,
        /// The offending character.
        character: char,
        /// Position of the character, counted from 1.
        position: usize,
    },
    /// The text begins or ends with a space, or consists only of spaces.
    #[error("{what} must not begin or end with a space, but character {position} is U+{:04X}", u32::from(*.character))]
    SurroundingSpace {
        /// The kind of text.
        what: &'static str,
        /// The offending space.
        character: char,
        /// Position of the character, counted from 1.
        position: usize,
    },
}

impl Line {
    /// Name of a token; the audit shows it as the actor.
    pub const TOKEN_NAME: Self = Self { what: "a token's name", characters_min: 1, characters_max: 100 };
    /// Reason for an action.
    pub const REASON: Self = Self { what: "a reason", characters_min: 1, characters_max: 500 };
    /// Value of a node label.
    pub const LABEL_VALUE: Self = Self { what: "a label's value", characters_min: 0, characters_max: 253 };
    /// Source of a release.
    pub const SOURCE: Self = Self { what: "a source", characters_min: 1, characters_max: 4_096 };
    /// What a controller says about a member.
    pub const REPORT_MESSAGE: Self = Self { what: "a message", characters_min: 1, characters_max: 500 };
    /// What a controller saw of a member, for example a line of a log.
    pub const REPORT_EVIDENCE: Self = Self { what: "evidence", characters_min: 1, characters_max: 1_000 };
    /// Search text.
    pub const SEARCH_TEXT: Self = Self { what: "a search text", characters_min: 0, characters_max: 256 };

    /// Maximum length in characters.
    pub const fn characters_max(&self) -> usize {
        self.characters_max
    }

    /// Refuses a text of the wrong length, with a character that [`is_invisible`], or with a space at the start or end.
    ///
    /// Accepts emoji and every script, but not the joiners U+200C and U+200D, which are invisible: an emoji sequence that needs them must
    /// be written as separate emoji. A variation selector is accepted only directly after an emoji.
    pub fn check(&self, text: &str) -> Result<(), LineError> {
        let (what, min, max, found) = (self.what, self.characters_min, self.characters_max, text.chars().count());
        if !(min..=max).contains(&found) {
            return Err(LineError::Length { what, min, max, found });
        }
        let mut before = None;
        let mut rest = text.chars().enumerate().peekable();
        while let Some((index, character)) = rest.next() {
            let shows =
                before.is_some_and(|before| is_valid_selector(before, character, rest.peek().map(|&(_, next)| next)));
            if is_invisible(character) || VARIATION_SELECTORS.contains(&character) && !shows {
                return Err(LineError::InvisibleCharacter { what, character, position: index + 1 });
            }
            before = Some(character);
        }
        let ends = [text.chars().next().map(|first| (first, 1)), before.map(|last| (last, text.chars().count()))];
        match ends.into_iter().flatten().find(|(end, _)| end.is_whitespace()) {
            Some((character, position)) => Err(LineError::SurroundingSpace { what, character, position }),
            None => Ok(()),
        }
    }
}

/// Escapes every character that [`is_invisible`] as `\u{…}`, so that untrusted text cannot control a terminal.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_invisible(character) { shown.extend(character.escape_unicode()) } else { shown.push(character) }
    }
    Cow::Owned(shown)
}

/// Returns true if `selector` is a variation selector after an emoji. An ASCII character such as a digit counts only if [`KEYCAP`] follows.
fn is_valid_selector(before: char, selector: char, after: Option<char>) -> bool {
    let is_emoji = CodePointSetData::new::<Emoji>().contains(before);
    VARIATION_SELECTORS.contains(&selector) && is_emoji && (!before.is_ascii() || after == Some(KEYCAP))
}

/// Returns true for characters that are not visible themselves: control characters, line ends, direction overrides, zero-width characters
/// and code points unassigned in the built-in Unicode version.
pub fn is_invisible(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    let is_non_text = matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    let is_ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character);
    is_non_text || is_ignorable && !VARIATION_SELECTORS.contains(&character) || character == BRAILLE_BLANK
}

#[cfg(test)]
mod tests;
