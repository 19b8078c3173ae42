//! Cuts long texts.

use std::borrow::Cow;

/// Marks the place where text was truncated.
pub const CUT_MARK: &str = " …[cut]";

/// Returns a text of at most `bytes_max` bytes: the text, or its beginning up to a character and [`CUT_MARK`].
pub fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes_max.saturating_sub(CUT_MARK.len()));
    Cow::Owned(format!("{}{CUT_MARK}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_text_is_cut_at_a_character_and_marked() {
        let whole = "ü".repeat(20);
        assert_eq!(cut(&whole, 40), whole);
        for (text, kept) in [("ü".repeat(21), 15), (format!("x{whole}"), 15)] {
            let cut = cut(&text, 40);
            assert!(cut.len() > 38 && cut.len() <= 40 && cut.ends_with(CUT_MARK), "{cut}");
            assert_eq!(cut.chars().count(), kept + CUT_MARK.chars().count() + usize::from(text.starts_with('x')));
        }
    }
}
