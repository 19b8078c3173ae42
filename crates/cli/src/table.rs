//! Tables: columns two blanks apart that fit the terminal.
//!
//! No crate does it: they shorten or break words, count colours as characters, or drop no columns.

use std::{borrow::Cow, io::IsTerminal};

use gpuaas_model::visible;
use unicode_width::UnicodeWidthStr;

use crate::color;

/// Blanks between two columns.
const GAP: usize = 2;
/// Narrowest width to which a column of sentences is wrapped.
const WRAP_WIDTH_MIN: usize = 20;
/// Headers of the columns whose cells are coloured.
const STATES: [&str; 6] = ["STATE", "HEALTH", "CONNECTIVITY", "LIFECYCLE", "RESULT", "USABLE"];

/// A column of a list of `T`.
pub(crate) struct Column<T> {
    header: &'static str,
    /// True if only `-o wide` shows it.
    is_wide: bool,
    cell: fn(&T) -> String,
}

/// Returns a column that every table shows.
pub(crate) const fn column<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, is_wide: false, cell }
}

/// Returns a column that only `-o wide` shows.
pub(crate) const fn wide<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, is_wide: true, cell }
}

/// The columns of a table with their widths.
pub(crate) struct Layout {
    headers: Vec<&'static str>,
    /// Width of each column; `None` if the terminal has no room for it.
    widths: Vec<Option<usize>>,
    /// True for each column that is narrower than its cells, so that they are wrapped. In every other column, a longer cell of a later row
    /// keeps its line.
    is_wrapped: Vec<bool>,
}

impl Layout {
    /// Returns the layout of a list, and its rows. `-o wide` shows all columns, whatever their width.
    pub(crate) fn of<T>(columns: &[Column<T>], items: &[T], is_wide: bool) -> (Self, Vec<Vec<String>>) {
        let shown = || columns.iter().filter(|column| is_wide || !column.is_wide);
        let rows: Vec<Vec<String>> = items.iter().map(|item| cells(shown(), item)).collect();
        let headers: Vec<&str> = shown().map(|column| column.header).collect();
        let room = if is_wide { None } else { terminal_width() };
        (Self::fitting(headers, &rows, room, true), rows)
    }

    /// Returns the cells of one more item.
    pub(crate) fn cells<T>(&self, columns: &[Column<T>], item: &T) -> Vec<String> {
        cells(columns.iter().filter(|column| self.headers.contains(&column.header)), item)
    }

    /// Fits a table into `room` characters: wraps columns of sentences between words, and then drops columns from the right if `may_drop`.
    fn fitting(headers: Vec<&'static str>, rows: &[Vec<String>], room: Option<usize>, may_drop: bool) -> Self {
        let widest = |at: usize, measure: fn(&str) -> usize| {
            rows.iter().map(|row| measure(&row[at])).max().unwrap_or_default().max(headers[at].width())
        };
        let natural: Vec<usize> = (0..headers.len()).map(|at| widest(at, UnicodeWidthStr::width)).collect();
        let narrowest: Vec<usize> =
            (0..headers.len()).map(|at| widest(at, longest_word).max(WRAP_WIDTH_MIN).min(natural[at])).collect();
        let mut columns = headers.len();
        if let Some(room) = room.filter(|_| may_drop) {
            while columns > 1 && total(&narrowest[..columns]) > room {
                columns -= 1;
            }
        }
        let mut widths = natural[..columns].to_vec();
        let mut excess = room.map_or(0, |room| total(&widths).saturating_sub(room));
        while excess > 0 {
            let slack = |at: &usize| widths[*at] - narrowest[*at];
            let Some(at) = (0..columns).filter(|at| slack(at) > 0).max_by_key(|at| widths[*at]) else { break };
            let less = excess.min(slack(&at));
            (widths[at], excess) = (widths[at] - less, excess - less);
        }
        let dropped = headers.len() - columns;
        let is_wrapped =
            (0..headers.len()).map(|at| widths.get(at).is_some_and(|width| *width < natural[at])).collect();
        let widths = widths.into_iter().map(Some).chain(std::iter::repeat_n(None, dropped)).collect();
        Self { headers, widths, is_wrapped }
    }

    /// Returns the headers of the columns for which the terminal has no room.
    pub(crate) fn dropped(&self) -> Vec<&'static str> {
        self.headers.iter().zip(&self.widths).filter(|(_, width)| width.is_none()).map(|(header, _)| *header).collect()
    }

    pub(crate) fn header(&self) -> String {
        self.row(&self.headers.iter().map(|header| (*header).to_owned()).collect::<Vec<_>>())
    }

    /// Formats a row; wrapped cells take several lines.
    pub(crate) fn row(&self, cells: &[String]) -> String {
        let lines =
            |cell: &str, width, is_wrapped| if is_wrapped { wrapped(cell, width) } else { vec![cell.to_owned()] };
        let columns: Vec<(&str, usize, Vec<String>)> = (self.headers.iter().zip(&self.widths))
            .zip(self.is_wrapped.iter().zip(cells))
            .filter_map(|((header, width), (is_wrapped, cell))| {
                width.map(|width| (*header, width, lines(cell, width, *is_wrapped)))
            })
            .collect();
        let lines = columns.iter().map(|(.., lines)| lines.len()).max().unwrap_or(1);
        let line = |number: usize| {
            let mut text = String::new();
            let mut blanks = 0;
            for (header, width, lines) in &columns {
                let part = lines.get(number).map_or("", String::as_str);
                if !part.is_empty() {
                    text.push_str(&" ".repeat(blanks));
                    blanks = 0;
                    text.push_str(&if STATES.contains(header) { color::state(part) } else { part.to_owned() });
                }
                blanks += width.saturating_sub(part.width()) + GAP;
            }
            text
        };
        (0..lines).map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Formats a table within a text. It keeps all columns.
pub(crate) fn table(header: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let escaped = |row: Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(escaped).collect();
    let layout = Layout::fitting(header.to_vec(), &rows, terminal_width(), false);
    let lines = rows.iter().map(|row| layout.row(row));
    std::iter::once(layout.header()).chain(lines).collect::<Vec<_>>().join("\n")
}

fn cells<'a, T: 'a>(columns: impl Iterator<Item = &'a Column<T>>, item: &T) -> Vec<String> {
    columns.map(|column| visible(&(column.cell)(item)).into_owned()).collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(UnicodeWidthStr::width).max().unwrap_or_default()
}

/// Breaks a text between words into lines of at most `width`; a longer word is a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.width() + 1 + word.width() <= width => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Shortens a text to `width` between words and marks the place.
pub(crate) fn shortened(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return Cow::Borrowed(text);
    }
    let line = wrapped(text, width.saturating_sub(2)).swap_remove(0);
    if line.width() + 2 > width { Cow::Borrowed("…") } else { Cow::Owned(format!("{line} …")) }
}

/// Returns the width of the terminal; `None` if stdout is none.
fn terminal_width() -> Option<usize> {
    width_of(&std::io::stdout())
}

/// Returns the width of this terminal; `None` if it is none, or does not know its width.
pub(crate) fn width_of(terminal: &(impl std::os::fd::AsFd + IsTerminal)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok().filter(|_| terminal.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(room: usize, may_drop: bool) -> String {
        let rows = [
            vec!["0198c0de".to_owned(), "waits until the server answers on its port".to_owned(), "failed".to_owned()],
            vec!["0198c0df".to_owned(), String::new(), "active".to_owned()],
        ];
        let layout = Layout::fitting(vec!["ID", "WAITING FOR", "PHASE"], &rows, Some(room), may_drop);
        let lines = rows.iter().map(|row| layout.row(row));
        std::iter::once(layout.header()).chain(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn sentences_are_wrapped_between_words_and_lines_have_no_trailing_blanks() {
        insta::assert_snapshot!(shown(42, true), @r"
        ID        WAITING FOR               PHASE
        0198c0de  waits until the server    failed
                  answers on its port
        0198c0df                            active
        ");
        assert!(shown(100, true).contains("its port  failed"));
    }

    #[test]
    fn columns_without_room_are_dropped_from_the_right_but_not_in_a_text() {
        insta::assert_snapshot!(shown(30, true), @r"
        ID        WAITING FOR
        0198c0de  waits until the
                  server answers on
                  its port
        0198c0df
        ");
        assert!(shown(30, false).contains("PHASE"));
        assert!(shown(3, true).starts_with("ID\n0198c0de\n"), "the first column stays, and no word is cut");
    }

    #[test]
    fn texts_are_shortened_between_words() {
        assert_eq!(shortened("kubelet not ready", 17), "kubelet not ready");
        assert_eq!(shortened("kubelet not ready", 16), "kubelet not …");
        assert_eq!(shortened("kubelet not ready", 8), "…");
    }

    #[test]
    fn control_characters_are_escaped() {
        let rows = [vec!["a\u{1b}[2Jb".to_owned(), "c\nd".to_owned()]];
        assert_eq!(table(&["ONE", "TWO"], rows.into_iter()), "ONE          TWO\na\\u{1b}[2Jb  c\\u{a}d");
    }
}
