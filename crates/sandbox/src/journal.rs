//! The journal: the lines of every unit, in memory for readers and on disk for the next init.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    rc::Rc,
};

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{Cursor, JournalFrom, JournalLine};
use gpuaas_model::Timestamp;
use tokio::sync::watch;

/// Lines kept per unit.
const LINES_KEPT: usize = 10_000;
/// Size from which a unit's file is rewritten with the lines that are still kept.
const FILE_BYTES_MAX: u64 = 16 * 1_024 * 1_024;

/// A unit's journal.
#[derive(Clone)]
pub(crate) struct Journal(Rc<RefCell<Inner>>);

struct Inner {
    lines: VecDeque<JournalLine>,
    next: u64,
    path: Utf8PathBuf,
    file: Option<File>,
    /// Size above which the next line rewrites the file.
    rewritten_above: u64,
    newest: watch::Sender<u64>,
}

impl Journal {
    /// Opens the journal of `unit`, with the lines that an earlier init left in `folder`.
    pub(crate) fn open(folder: &Utf8Path, unit: &str) -> Self {
        let path = folder.join(format!("{unit}.jsonl"));
        let mut lines = VecDeque::new();
        if let Ok(file) = File::open(&path) {
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                lines.extend(serde_json::from_str::<JournalLine>(&line).ok());
                if lines.len() > LINES_KEPT {
                    lines.pop_front();
                }
            }
        }
        let next = lines.back().map_or(1, |line: &JournalLine| number(&line.cursor).saturating_add(1));
        let file = OpenOptions::new().create(true).append(true).open(&path).ok();
        let newest = watch::Sender::new(next - 1);
        Self(Rc::new(RefCell::new(Inner { lines, next, path, file, rewritten_above: FILE_BYTES_MAX, newest })))
    }

    /// Adds a line of the init itself.
    pub(crate) fn write(&self, text: &str) {
        self.write_bounded(text.as_bytes(), text.len());
    }

    /// Adds a line of a program: it has `length` bytes, and `start` is its beginning or all. Removes a priority prefix (`<0>` to `<7>`) and
    /// blanks around the text; adds nothing if no text is left.
    pub(crate) fn write_output(&self, start: &[u8], length: usize) {
        let text = match start {
            [b'<', b'0'..=b'7', b'>', text @ ..] => text,
            text => text,
        };
        let left_out = start.len() - text.trim_ascii_start().len();
        let is_complete = length == start.len();
        let text = if is_complete { text.trim_ascii() } else { text.trim_ascii_start() };
        if !text.is_empty() {
            self.write_bounded(text, if is_complete { text.len() } else { length - left_out });
        }
    }

    /// Adds a line, with a note at its end if it is not kept whole.
    fn write_bounded(&self, start: &[u8], length: usize) {
        let mut inner = self.0.borrow_mut();
        let line = JournalLine { cursor: cursor(inner.next), at: now(), text: JournalLine::bounded(start, length) };
        inner.persist(&line);
        inner.newest.send_replace(inner.next);
        inner.next += 1;
        inner.lines.push_back(line);
        if inner.lines.len() > LINES_KEPT {
            inner.lines.pop_front();
        }
    }

    /// Returns the number before the first line of `from`.
    pub(crate) fn before(&self, from: &JournalFrom) -> u64 {
        let inner = self.0.borrow();
        match from {
            JournalFrom::Start => 0,
            JournalFrom::After(cursor) => number(cursor),
            JournalFrom::Since(at) => {
                let first = inner.lines.iter().find(|line| line.at >= *at);
                first.map_or(inner.next, |line| number(&line.cursor)) - 1
            }
            JournalFrom::Tail(lines) => inner.next.saturating_sub(1 + u64::from(*lines)),
        }
    }

    /// Returns at most `limit` lines after the number `before`.
    pub(crate) fn after(&self, before: u64, limit: usize) -> Vec<JournalLine> {
        let inner = self.0.borrow();
        let from = inner.lines.partition_point(|line| number(&line.cursor) <= before);
        inner.lines.range(from..).take(limit).cloned().collect()
    }

    /// Returns a receiver that changes with every line.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.0.borrow().newest.subscribe()
    }
}

impl Inner {
    fn persist(&mut self, line: &JournalLine) {
        if self.file_bytes() > self.rewritten_above {
            self.file = File::create(&self.path).ok();
            for kept in &self.lines {
                append(self.file.as_mut(), kept);
            }
            // The kept lines alone may be larger than the limit: without room for as many more, every line would write all of them again.
            self.rewritten_above = FILE_BYTES_MAX.max(self.file_bytes().saturating_mul(2));
        }
        append(self.file.as_mut(), line);
    }

    fn file_bytes(&self) -> u64 {
        self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len())
    }
}

/// Appends a line to the file and ignores errors: a full disk must not stop units, and the line is still in memory.
fn append(file: Option<&mut File>, line: &JournalLine) {
    if let (Some(file), Ok(mut json)) = (file, serde_json::to_vec(line)) {
        json.push(b'\n');
        let _ = file.write_all(&json);
    }
}

/// Returns the cursor of a line's number.
fn cursor(number: u64) -> Cursor {
    Cursor::new(number.to_string())
}

/// Returns the number of a line. No line comes after an invalid cursor.
pub(crate) fn number(cursor: &Cursor) -> u64 {
    cursor.as_str().parse().unwrap_or(u64::MAX)
}

/// Returns the machine's time.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_resume_without_loss_or_repetition_also_in_the_next_init() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        let journal = Journal::open(folder, "a.service");
        for text in ["one", "two", "three"] {
            journal.write(text);
        }
        let texts = |journal: &Journal, before| -> Vec<String> {
            journal.after(before, 10).into_iter().map(|line| line.text).collect()
        };
        assert_eq!(texts(&journal, journal.before(&JournalFrom::Tail(2))), ["two", "three"]);
        drop(journal);
        let next = Journal::open(folder, "a.service");
        next.write("four");
        assert_eq!(texts(&next, 2), ["three", "four"]);
    }

    #[test]
    fn a_file_whose_kept_lines_exceed_the_limit_is_not_rewritten_for_every_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        let journal = Journal::open(folder, "a.service");
        let text = "x".repeat(2_000);
        let written = LINES_KEPT + 10;
        for _ in 0..written {
            journal.write(&text);
        }
        let lines_in_file = || std::fs::read_to_string(folder.join("a.service.jsonl")).unwrap().lines().count();
        // A rewrite would leave out those that are not kept any more.
        assert_eq!(lines_in_file(), written);

        journal.0.borrow_mut().rewritten_above = FILE_BYTES_MAX;
        journal.write(&text);
        assert_eq!(lines_in_file(), LINES_KEPT + 1, "a rewrite leaves the kept lines, and the new one follows");
    }
}
