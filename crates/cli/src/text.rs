//! Text for a terminal. Only this program's own colours are in it: everything else is escaped when it is added.

use gpuaas_model::visible;

/// A text whose control and invisible characters are escaped, except for the colours of its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(String);

impl Text {
    /// Appends lines of any origin; escapes them and keeps their ends.
    pub(crate) fn push_str(&mut self, lines: &str) {
        for (number, line) in lines.split('\n').enumerate() {
            if number > 0 {
                self.0.push('\n');
            }
            self.0.push_str(&visible(line));
        }
    }

    /// Appends a text that is escaped already.
    pub(crate) fn push(&mut self, text: &Self) {
        self.0.push_str(&text.0);
    }

    /// Takes lines whose cells were escaped before they were coloured.
    pub(crate) const fn of_escaped_cells(lines: String) -> Self {
        Self(lines)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Text {
    fn from(lines: &str) -> Self {
        let mut text = Self::default();
        text.push_str(lines);
        text
    }
}

impl From<String> for Text {
    fn from(lines: String) -> Self {
        lines.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_line_ends_kept() {
        assert_eq!(Text::from("error: a\u{202e}b\n  next").as_str(), "error: a\\u{202e}b\n  next");
    }
}
