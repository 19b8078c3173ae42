//! Tables: columns two blanks apart that fit the terminal.
//!
//! No crate does it: they shorten or break words, count colours as characters, or drop no columns.

use std::{borrow::Cow, cmp::Reverse, io::IsTerminal};

use gpuaas_model::visible;
use unicode_width::UnicodeWidthStr;

use crate::{color, duration::format_distance, text::Text};

/// Blanks between two columns.
const GAP: usize = 2;
/// Narrowest width to which a column of sentences is wrapped.
const WRAP_WIDTH_MIN: usize = 20;
/// Headers of the columns whose cells are coloured.
const STATES: [&str; 6] = ["STATE", "HEALTH", "CONNECTIVITY", "LIFECYCLE", "RESULT", "USABLE"];
/// Headers of the columns that say why nothing happens.
const REASONS: [&str; 2] = ["REASON", "WAITING FOR"];
/// Headers of the columns with ids. Commands accept an id by its beginning, except a correlation id.
const IDS: [&str; 8] = ["ID", "ALLOCATION", "CORRELATION", "GRANT", "OPERATION", "SUBJECT", "TARGET", "TASK"];
/// Headers of the columns whose cells are shortened anyway: one line of them is better than none.
const SHORTENED: [&str; 2] = ["DATA", "DETAIL"];
/// Length of an id, a UUID.
const ID_LENGTH: usize = 36;
/// Length of a SHA-256 digest in hex, by which the audit names certificate authorities.
const DIGEST_LENGTH: usize = 64;
/// Fewest characters of an id that are shown.
const ID_LENGTH_MIN: usize = 8;

/// A column of a list of `T`.
pub(crate) struct Column<T> {
    header: &'static str,
    shown: Shown,
    cell: fn(&T) -> String,
}

/// Which tables show a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    /// `-o wide`, and tables with rows whose cells differ.
    IfDifferent,
    /// Only `-o wide`.
    Wide,
}

/// Returns a column that every table shows.
pub(crate) const fn column<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, shown: Shown::Always, cell }
}

/// Returns a column that tells rows apart: `-o wide` shows it, and tables with rows whose cells differ.
pub(crate) const fn distinguishing<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, shown: Shown::IfDifferent, cell }
}

/// Returns a column that only `-o wide` shows.
pub(crate) const fn wide<T>(header: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { header, shown: Shown::Wide, cell }
}

/// The columns of a table with their widths.
pub(crate) struct Layout {
    headers: Vec<&'static str>,
    form: Form,
    /// Width of each column; `None` if the terminal has no room for it.
    widths: Vec<Option<usize>>,
    /// What happens to the cells of each column that are wider than it.
    overflow: Vec<Overflow>,
}

/// What happens to a cell that is wider than its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// It keeps its line: the column is as wide as its cells, and only a later row has a wider one.
    Kept,
    /// It takes several lines.
    Wrapped,
    /// It is cut between words.
    Shortened,
}

/// How ids and times are shown.
#[derive(Clone, Copy)]
struct Form {
    /// Number of characters of an id.
    id_length: usize,
    /// True if a time is shown as its distance from now.
    has_ages: bool,
}

impl Layout {
    /// Returns the layout of a list, and its rows. `-o wide` shows all columns, whatever their width. With `has_more_rows`, ids keep their
    /// length and distinguishing columns are shown: what tells the first rows apart may not tell apart later ones.
    pub(crate) fn of<T>(
        columns: &[Column<T>],
        items: &[T],
        is_wide: bool,
        has_more_rows: bool,
    ) -> (Self, Vec<Vec<String>>) {
        let differs = |column: &Column<T>| {
            let mut cells = items.iter().map(column.cell);
            cells.next().is_some_and(|first| cells.any(|cell| cell != first))
        };
        let is_shown = |column: &&Column<T>| match column.shown {
            Shown::Always => true,
            Shown::IfDifferent => is_wide || has_more_rows || differs(column),
            Shown::Wide => is_wide,
        };
        let shown: Vec<&Column<T>> = columns.iter().filter(is_shown).collect();
        let rows: Vec<Vec<String>> = items.iter().map(|item| cells(shown.iter().copied(), item)).collect();
        let headers: Vec<&str> = shown.iter().map(|column| column.header).collect();
        let room = if is_wide { None } else { terminal_width() };
        let id_length = if has_more_rows { ID_LENGTH } else { id_length(&headers, &rows) };
        Self::fitting(headers, &rows, room, id_length, true)
    }

    /// Returns the cells of one more item.
    pub(crate) fn cells<T>(&self, columns: &[Column<T>], item: &T) -> Vec<String> {
        let row = cells(columns.iter().filter(|column| self.headers.contains(&column.header)), item);
        self.form.row(&self.headers, &row)
    }

    /// Fits a table into `room` characters: shortens ids to `id_length`, then shows times as ages, then wraps columns of sentences between words, then
    /// shortens details and drops columns if `may_drop`. Returns the rows as they are shown.
    fn fitting(
        headers: Vec<&'static str>,
        rows: &[Vec<String>],
        room: Option<usize>,
        id_length: usize,
        may_drop: bool,
    ) -> (Self, Vec<Vec<String>>) {
        let widest = |rows: &[Vec<String>], at: usize, measure: fn(&str) -> usize| {
            rows.iter().map(|row| measure(&row[at])).max().unwrap_or_default().max(headers[at].width())
        };
        let measured = |rows: &[Vec<String>]| -> Vec<usize> {
            (0..headers.len()).map(|at| widest(rows, at, UnicodeWidthStr::width)).collect()
        };
        let forms = [(ID_LENGTH, false), (id_length, false), (id_length, true)];
        let mut forms = forms.map(|(id_length, has_ages)| Form { id_length, has_ages }).into_iter().map(|form| {
            let rows: Vec<Vec<String>> = rows.iter().map(|row| form.row(&headers, row)).collect();
            (form, measured(&rows), rows)
        });
        let fits = |natural: &[usize]| room.is_none_or(|room| total(natural.iter()) <= room);
        let last = forms.next_back().expect("the array has three forms");
        let (form, natural, rows) = forms.find(|(_, natural, _)| fits(natural)).unwrap_or(last);
        let mut narrowest: Vec<usize> =
            (0..headers.len()).map(|at| widest(&rows, at, longest_word).max(WRAP_WIDTH_MIN).min(natural[at])).collect();
        let mut is_shortened = vec![false; headers.len()];
        let mut kept: Vec<usize> = (0..headers.len()).collect();
        // Whole ids name the rows that are printed later: their column stays.
        if let Some(room) = room.filter(|_| may_drop) {
            // A later row may have a cell where those of the first rows are empty.
            let has_later_rows = id_length == ID_LENGTH || rows.is_empty();
            let is_empty = |at: &usize| *at > 0 && !has_later_rows && rows.iter().all(|row| row[*at].is_empty());
            while total(kept.iter().map(|at| &narrowest[*at])) > room
                && let Some(at) = kept
                    .iter()
                    .copied()
                    .find(is_empty)
                    .or_else(|| next_dropped(&headers, &kept[usize::from(id_length == ID_LENGTH)..]))
            {
                if SHORTENED.contains(&headers[at]) && narrowest[at] > WRAP_WIDTH_MIN {
                    (narrowest[at], is_shortened[at]) = (WRAP_WIDTH_MIN, true);
                } else {
                    kept.retain(|of| *of != at);
                }
            }
        }
        let mut widths = natural.clone();
        let mut excess = room.map_or(0, |room| total(kept.iter().map(|at| &widths[*at])).saturating_sub(room));
        while excess > 0 {
            let slack = |at: usize| widths[at] - narrowest[at];
            let Some(at) = kept.iter().copied().filter(|at| slack(*at) > 0).max_by_key(|at| widths[*at]) else { break };
            let less = excess.min(slack(at));
            (widths[at], excess) = (widths[at] - less, excess - less);
        }
        let overflow = |at: usize| match (widths[at] < natural[at], is_shortened[at]) {
            (false, _) => Overflow::Kept,
            (true, false) => Overflow::Wrapped,
            (true, true) => Overflow::Shortened,
        };
        let overflow = (0..headers.len()).map(overflow).collect();
        let widths = widths.into_iter().enumerate().map(|(at, width)| kept.contains(&at).then_some(width)).collect();
        (Self { headers, form, widths, overflow }, rows)
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
        self.painted_row(cells, color::state)
    }

    fn painted_row(&self, cells: &[String], paint: fn(&str) -> String) -> String {
        let lines = |cell: &str, width, overflow| match overflow {
            Overflow::Kept => vec![cell.to_owned()],
            Overflow::Wrapped => wrapped(cell, width),
            Overflow::Shortened => vec![shortened(cell, width).into_owned()],
        };
        let columns: Vec<(&str, usize, Vec<String>)> = (self.headers.iter().zip(&self.widths))
            .zip(self.overflow.iter().zip(cells))
            .filter_map(|((header, width), (overflow, cell))| {
                width.map(|width| (*header, width, lines(cell, width, *overflow)))
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
                    text.push_str(&if STATES.contains(header) { paint(part) } else { part.to_owned() });
                }
                blanks += width.saturating_sub(part.width()) + GAP;
            }
            text
        };
        (0..lines).map(line).collect::<Vec<_>>().join("\n")
    }
}

impl Form {
    /// Returns the cells of a row as they are shown.
    fn row(self, headers: &[&str], cells: &[String]) -> Vec<String> {
        let shown = |(header, cell): (&&str, &String)| match id_in(header, cell) {
            Some((before, id, after)) => format!("{before}{}{after}", &id[..self.length_of(id)]),
            None => self.has_ages.then(|| format_distance(cell)).flatten().unwrap_or_else(|| cell.clone()),
        };
        headers.iter().zip(cells).map(shown).collect()
    }

    /// Returns how many characters of an id or a digest are shown.
    fn length_of(self, id: &str) -> usize {
        if self.id_length == ID_LENGTH { id.len() } else { self.id_length }
    }
}

/// Returns the id or the digest in a cell with what is before and after it: `ID …`, or `KIND/ID`. `None` for other cells and columns.
fn id_in<'a>(header: &str, cell: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
    let word = cell.split(' ').next()?;
    let (before, rest) = cell.split_at(word.rfind('/').map_or(0, |slash| slash + 1));
    let (id, after) = rest.split_at(word.len() - before.len());
    let is_id = matches!(id.len(), ID_LENGTH | DIGEST_LENGTH)
        && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (IDS.contains(&header) && is_id).then_some((before, id, after))
}

/// Returns the fewest characters that tell the ids of every column apart.
fn id_length(headers: &[&str], rows: &[Vec<String>]) -> usize {
    let mut longest = ID_LENGTH_MIN;
    for (at, header) in headers.iter().enumerate() {
        let mut ids: Vec<&str> = rows.iter().filter_map(|row| id_in(header, &row[at])).map(|(_, id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        for pair in ids.windows(2) {
            let common = pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count();
            // Not a dash as the last character.
            let is_dash = pair.iter().any(|id| id.as_bytes().get(common) == Some(&b'-'));
            longest = longest.max(common + if is_dash { 2 } else { 1 });
        }
    }
    longest.min(ID_LENGTH)
}

/// Returns the column that is dropped next, of those with a value: first those that lead to other objects, then the last one, but ids and actors only after the
/// others, and states, reasons and actions last. A first column that is no id names the rows and stays.
fn next_dropped(headers: &[&str], kept: &[usize]) -> Option<usize> {
    let rank = |at: usize| match headers[at] {
        "CORRELATION" | "TOKEN" => 0,
        header if header == "ACTOR" || IDS.contains(&header) => 2,
        header if header == "ACTION" || STATES.contains(&header) || REASONS.contains(&header) => 3,
        _ => 1,
    };
    let may_go = |at: &usize| kept.len() > 1 && (*at > 0 || rank(*at) == 2);
    kept.iter().copied().filter(may_go).min_by_key(|at| (rank(*at), Reverse(*at)))
}

/// Formats a table within a text. It keeps all columns.
pub(crate) fn table(header: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> Text {
    painted_table(header, rows, color::state)
}

/// Formats rows of plain text, the first of them as header, as wide as the terminal.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Text {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let row = |row: &Vec<String>| (0..columns).map(|at| row.get(at).cloned().unwrap_or_default()).collect::<Vec<_>>();
    let escaped = |row: Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(row).map(escaped).collect();
    // No header has a meaning here: nothing is shortened or coloured.
    let (layout, rows) = Layout::fitting(vec![""; columns], &rows, terminal_width(), ID_LENGTH, false);
    Text::of_escaped_cells(rows.iter().map(|row| layout.row(row)).collect::<Vec<_>>().join("\n"))
}

fn painted_table(header: &[&'static str], rows: impl Iterator<Item = Vec<String>>, paint: fn(&str) -> String) -> Text {
    let escaped = |row: Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(escaped).collect();
    let (layout, rows) = Layout::fitting(header.to_vec(), &rows, terminal_width(), id_length(header, &rows), false);
    let lines = rows.iter().map(|row| layout.painted_row(row, paint));
    Text::of_escaped_cells(std::iter::once(layout.header()).chain(lines).collect::<Vec<_>>().join("\n"))
}

fn cells<'a, T: 'a>(columns: impl Iterator<Item = &'a Column<T>>, item: &T) -> Vec<String> {
    columns.map(|column| visible(&(column.cell)(item)).into_owned()).collect()
}

fn total<'a>(widths: impl Iterator<Item = &'a usize>) -> usize {
    widths.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
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
mod tests;
