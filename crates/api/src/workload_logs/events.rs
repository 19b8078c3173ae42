//! The events of one workload, out of its project's stream: from a time or a number on, or the last ones.
//!
//! Guarantees: every event that is in the database is returned once and in order; removed events are reported. At most [`BATCH`] events are
//! in memory.

use std::collections::VecDeque;

use gpuaas_engine::commands::logs::WorkloadLogs;
use gpuaas_model::{LogSource, StreamName, Timestamp};
use gpuaas_store::{Change, EventRecord, Reader, Store, StoreError};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Range, Read, describe::Describer, line::TimedLine};

/// Events per read.
const BATCH: u32 = 200;
/// Most events of the project that are searched for the last ones of the workload.
const SEARCHED_MAX: u64 = 10_000;
/// Largest difference between the clocks of replicas, in milliseconds: the times of consecutive events go back by no more.
const CLOCKS_DIFFER_MAX_MS: i64 = 10_000;

/// Reads the events of a workload.
pub(super) struct EventReader {
    store: Store,
    stream: StreamName,
    describer: Describer,
    sources: Vec<LogSource>,
    range: Range,
    changes: Receiver<Change>,
    /// Number of the last event that was read.
    after: u64,
    /// Number of the last event when the reading began.
    present: Option<u64>,
    pending: VecDeque<Read>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its first event is not found yet.
    New,
    History,
    Follow,
    Ended,
}

impl EventReader {
    /// Reads the events of the selected sources, after number `after` if it is given, otherwise in the range.
    pub(super) fn new(
        store: &Store,
        logs: &WorkloadLogs,
        sources: &[LogSource],
        range: Range,
        after: Option<u64>,
    ) -> Self {
        Self {
            // Subscribes before the first read, so that no commit in between is missed.
            changes: store.changes(),
            store: store.clone(),
            stream: StreamName::Project(logs.project),
            describer: Describer::new(logs.workload, logs.name.clone()),
            sources: sources.to_vec(),
            range: Range { since: range.since.filter(|_| after.is_none()), ..range },
            after: after.unwrap_or(0),
            present: None,
            pending: VecDeque::new(),
            state: if after.is_some() { State::History } else { State::New },
        }
    }

    /// Returns the next event or report; `None` at the end. `now` is the time of a report.
    pub(super) async fn next(&mut self, now: impl Fn() -> Timestamp) -> Option<Read> {
        loop {
            if let Some(read) = self.pending.pop_front() {
                return Some(read);
            }
            let advanced = match self.state {
                State::Ended => return None,
                State::New => self.start().await,
                State::History | State::Follow => self.advance().await,
            };
            if let Err(error) = advanced {
                tracing::warn!(%error, "the events of a workload cannot be read");
                self.state = State::Ended;
                let text = "the control plane's events cannot be read any more; run the command again";
                return Some(Read::Problem(TimedLine::problem(now(), None, text)));
            }
        }
    }

    /// Finds the first event.
    async fn start(&mut self) -> Result<(), StoreError> {
        let mut reader = self.store.read().await?;
        let last = reader.last_sequence(self.stream).await?;
        self.after = match (self.range.since, self.range.tail) {
            (Some(since), _) => before(&mut reader, self.stream, since, last).await?,
            (None, Some(tail)) => self.before_last(&mut reader, tail, last).await?,
            (None, None) => 0,
        };
        (self.present, self.state) = (Some(last), State::History);
        Ok(())
    }

    /// Returns the number before the last `tail` events of the workload.
    async fn before_last(&mut self, reader: &mut Reader, tail: u32, last: u64) -> Result<u64, StoreError> {
        let (mut begin, mut found) = (last, 0);
        while begin > 0 && found < tail && last - begin < SEARCHED_MAX {
            let end = begin;
            begin = begin.saturating_sub(u64::from(BATCH));
            let events = reader.events(self.stream, begin, BATCH).await?;
            let within = events.iter().take_while(|event| event.sequence <= end);
            let oldest = within.clone().next().map(|event| (event.sequence, event.at));
            for event in within {
                let line = self.describer.describe(reader, event).await?;
                found += u32::from(line.is_some_and(|line| self.is_selected(&line)));
            }
            match oldest {
                // Older events were removed.
                None => return Ok(end),
                Some((first, _)) if first > begin + 1 => return Ok(first - 1),
                Some((_, at)) if last - begin >= SEARCHED_MAX && begin > 0 && found < tail => {
                    let text = "older events are not searched; see them with --since";
                    self.pending.push_back(Read::Line(TimedLine::problem(at, None, text)));
                }
                Some(_) => {}
            }
        }
        Ok(begin)
    }

    /// Reads the next events, or waits for them.
    async fn advance(&mut self) -> Result<(), StoreError> {
        let mut reader = self.store.read().await?;
        let present = match self.present {
            Some(present) => present,
            None => *self.present.insert(reader.last_sequence(self.stream).await?),
        };
        let events = reader.events(self.stream, self.after, BATCH).await?;
        for event in &events {
            self.take(&mut reader, event).await?;
        }
        drop(reader);
        match self.state {
            State::History if events.is_empty() || self.after >= present => {
                self.state = if self.range.follow { State::Follow } else { State::Ended };
                self.pending.push_back(Read::CaughtUp);
            }
            State::Follow if events.is_empty() => self.wait().await,
            State::New | State::History | State::Follow | State::Ended => {}
        }
        Ok(())
    }

    async fn take(&mut self, reader: &mut Reader, event: &EventRecord) -> Result<(), StoreError> {
        let is_from_a_point = self.after > 0 || self.range.since.is_some();
        if is_from_a_point && event.sequence > self.after + 1 {
            let text =
                format!("events {} to {} were removed; see gpuaas archive list", self.after + 1, event.sequence - 1);
            self.pending.push_back(Read::Line(TimedLine::problem(event.at, None, text)));
        }
        self.after = event.sequence;
        if self.range.since.is_some_and(|since| event.at < since) {
            return Ok(());
        }
        let Some(line) = self.describer.describe(reader, event).await? else { return Ok(()) };
        if let Some(member) = self.describer.member_of(event) {
            self.pending.push_back(Read::Member(member));
        }
        if self.is_selected(&line) {
            self.pending.push_back(Read::Line(line));
        }
        Ok(())
    }

    fn is_selected(&self, line: &TimedLine) -> bool {
        self.sources.iter().any(|source| source.as_str() == line.line.source)
    }

    /// Waits for a commit to the stream. Missed notifications count as one.
    async fn wait(&mut self) {
        loop {
            match self.changes.recv().await {
                Ok(Change::Event { stream, sequence }) if stream == self.stream && sequence > self.after => return,
                Ok(
                    Change::Event { .. }
                    | Change::Operation(_)
                    | Change::Node(_)
                    | Change::Token(_)
                    | Change::Keys
                    | Change::Sealing,
                ) => {}
                Ok(Change::Missed) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Returns the number before the first event at or after `since`, or a smaller one. The times of a stream grow with its numbers, except for
/// the difference between the clocks of replicas.
async fn before(reader: &mut Reader, stream: StreamName, since: Timestamp, last: u64) -> Result<u64, StoreError> {
    let since = Timestamp::from_millis(since.as_millis().saturating_sub(CLOCKS_DIFFER_MAX_MS));
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        let next = reader.events(stream, middle, 1).await?;
        match next.first().filter(|event| event.at < since) {
            Some(event) => low = event.sequence.min(high),
            None => high = middle,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests;
