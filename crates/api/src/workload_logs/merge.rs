//! Merges lines of several sources by time, within bounds.
//!
//! Guarantees: lines of one source keep their order. While every source has a line, the earliest comes first. A source without a line holds
//! the others back for at most [`HISTORY_WAIT_MAX`] after the beginning, and each of their lines for at most [`REORDER_WAIT_MAX`] later.
//! Once a source has caught up with the present, none of its lines passes another line that has waited for [`HOLD_MAX`], whatever times a
//! node gives its lines. All sources together hold [`REORDER_BYTES_MAX`] and one line more each.
//!
//! Pure: the caller supplies the time.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use gpuaas_model::Timestamp;

/// Longest time after the beginning for which the others wait for a source that has not caught up: as long as opening a connection to a
/// node may take.
pub(crate) const HISTORY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time that a line waits for earlier lines of sources that have caught up: more than the delay between nodes of one site, and
/// short for a reader.
pub(crate) const REORDER_WAIT_MAX: Duration = Duration::from_millis(200);
/// Longest time that a line waits while earlier lines of others pass it.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(2);
/// Bytes of lines that wait, of all sources together. Each source has an equal share.
pub(crate) const REORDER_BYTES_MAX: usize = 4 * 1_024 * 1_024;
/// Lines that wait, of all sources together. Each source has an equal share.
pub(crate) const REORDER_LINES_MAX: usize = 16_384;

/// Number of a source, from 0.
pub(crate) type SourceNumber = usize;

/// How far a source has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It returns lines from before the beginning.
    History,
    /// It has caught up, and returns lines as they are written.
    Live,
    /// It has caught up and returns lines without delay: nobody waits for it.
    Prompt,
    /// It returns no more lines.
    Ended,
}

/// A line that waits.
struct Waiting<T> {
    at: Timestamp,
    arrived: Timestamp,
    bytes: usize,
    line: T,
}

struct Source<T> {
    lines: VecDeque<Waiting<T>>,
    bytes: usize,
    progress: Progress,
}

/// The lines that wait, by source.
pub(crate) struct Merge<T> {
    sources: BTreeMap<SourceNumber, Source<T>>,
    history_until: Timestamp,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// Pass this line on.
    Line(T),
    /// Wait until a source has another line, at most until this time if there is one.
    Wait(Option<Timestamp>),
    /// Every source has ended and every line was passed on.
    Ended,
}

impl<T> Merge<T> {
    /// Begins to merge at the time `now`.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { sources: BTreeMap::new(), history_until: now.plus(HISTORY_WAIT_MAX) }
    }

    /// Adds a source that has not caught up, and returns its number.
    pub(crate) fn add(&mut self) -> SourceNumber {
        let number = self.sources.len();
        self.sources.insert(number, Source { lines: VecDeque::new(), bytes: 0, progress: Progress::History });
        number
    }

    /// Returns whether the source may bring another line.
    pub(crate) fn has_room(&self, number: SourceNumber) -> bool {
        self.sources.get(&number).is_some_and(|source| self.has_room_in(source))
    }

    fn has_room_in(&self, source: &Source<T>) -> bool {
        let sources = self.sources.len().max(1);
        let is_within = source.bytes < REORDER_BYTES_MAX / sources && source.lines.len() < REORDER_LINES_MAX / sources;
        source.lines.is_empty() || is_within
    }

    /// Adds a line that arrived at `now`.
    pub(crate) fn push(&mut self, number: SourceNumber, at: Timestamp, bytes: usize, now: Timestamp, line: T) {
        if let Some(source) = self.sources.get_mut(&number) {
            source.bytes += bytes;
            source.lines.push_back(Waiting { at, arrived: now, bytes, line });
        }
    }

    /// Notes that a source has caught up. Others do not wait for a `prompt` one any more.
    pub(crate) fn caught_up(&mut self, number: SourceNumber, prompt: bool) {
        let progress = if prompt { Progress::Prompt } else { Progress::Live };
        self.set(number, progress);
    }

    /// Notes that a source returns no more lines.
    pub(crate) fn end(&mut self, number: SourceNumber) {
        self.set(number, Progress::Ended);
    }

    fn set(&mut self, number: SourceNumber, progress: Progress) {
        if let Some(source) = self.sources.get_mut(&number) {
            source.progress = progress;
        }
    }

    /// Returns whether nobody waits for lines from before the beginning any more, and if not, until when at most.
    pub(crate) fn history_over(&self, now: Timestamp) -> Result<(), Timestamp> {
        let awaits = self.sources.values().any(|source| source.progress == Progress::History);
        if awaits && now < self.history_until { Err(self.history_until) } else { Ok(()) }
    }

    /// Returns the number of lines that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.sources.values().map(|source| source.lines.len()).sum()
    }

    /// Returns the next line, or what to wait for.
    pub(crate) fn next(&mut self, now: Timestamp) -> Next<T> {
        let heads =
            || self.sources.iter().filter_map(|(number, source)| Some((*number, source, source.lines.front()?)));
        let Some((earliest, source, head)) = heads().min_by_key(|(number, _, head)| (head.at, *number)) else {
            let is_over = self.sources.values().all(|source| source.progress == Progress::Ended);
            return if is_over { Next::Ended } else { Next::Wait(None) };
        };
        if source.progress != Progress::History {
            let held = heads().filter(|(_, _, held)| now >= held.arrived.plus(HOLD_MAX));
            if let Some((number, ..)) = held.min_by_key(|(number, _, held)| (held.arrived, *number)) {
                return self.take(number);
            }
        }
        match self.awaited_until(source, head, now) {
            Some(until) => Next::Wait(Some(until)),
            None => self.take(earliest),
        }
    }

    /// Returns until when the head of a source waits for earlier lines of others; `None` if it waits no longer.
    fn awaited_until(&self, of: &Source<T>, head: &Waiting<T>, now: Timestamp) -> Option<Timestamp> {
        let reorder_until = head.arrived.plus(REORDER_WAIT_MAX);
        let is_full = !self.has_room_in(of);
        let until = |source: &Source<T>| match source.progress {
            _ if !source.lines.is_empty() => None,
            Progress::History if now < self.history_until => Some(self.history_until),
            Progress::History | Progress::Live if !is_full && now < reorder_until => Some(reorder_until),
            Progress::History | Progress::Live | Progress::Prompt | Progress::Ended => None,
        };
        self.sources.values().filter_map(until).max()
    }

    fn take(&mut self, number: SourceNumber) -> Next<T> {
        let taken = self.sources.get_mut(&number).and_then(|source| {
            let taken = source.lines.pop_front()?;
            source.bytes -= taken.bytes;
            Some(taken.line)
        });
        taken.map_or(Next::Wait(None), Next::Line)
    }
}

#[cfg(test)]
mod tests;
