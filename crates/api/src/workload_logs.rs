//! A workload's logs: the journals of its members, the output of its tasks and its events, merged by time.
//!
//! Guarantees: each source keeps its order; a source that is slow, unreachable or noisy neither stops nor starves the others (`merge`
//! bounds their waits), and what cannot be read is reported as a line. The memory of a stream is bounded: [`merge::REORDER_BYTES_MAX`], and
//! [`TAIL_BYTES_MAX`] while the last lines are collected. A node is read only as fast as the client reads.
//!
//! Deliberately absent: who may read what (`engine`), and the validity of the caller's token (`streams`).

mod connection;
mod describe;
mod events;
mod join;
mod journal;
mod line;
mod merge;
mod tail;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use futures::{
    FutureExt, Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use gpuaas_api_types::WorkloadLogLine;
use gpuaas_engine::{
    Caller,
    commands::logs::{self, LogSelection, MemberJournal},
};
use gpuaas_model::{Clock, LogPosition, LogSource, Runtime, Timestamp, WorkloadId};

use self::{
    connection::NodeConnection,
    events::EventReader,
    join::Joining,
    journal::JournalReader,
    line::TimedLine,
    merge::{Merge, Next, SourceNumber},
    tail::Tail,
};
use crate::{problem::ApiProblem, state::ApiState, streams::StreamPermit};

/// Bytes of the last lines that are collected before the first of them is sent.
pub(crate) const TAIL_BYTES_MAX: usize = 4 * 1_024 * 1_024;
/// Members without a readable journal that are reported one by one; the others are counted.
const REFUSED_REPORTED_MAX: usize = 16;

/// What a client asks for.
pub(crate) struct LogRequest {
    pub(crate) selection: LogSelection,
    pub(crate) range: Range,
    /// Positions after which the journals of members are continued.
    pub(crate) resume: BTreeMap<String, LogPosition>,
    /// Number after which the events are continued.
    pub(crate) after_event: Option<u64>,
}

/// Selects lines by time and number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    /// Only lines since this time.
    pub(crate) since: Option<Timestamp>,
    /// Only the last lines, at most this many.
    pub(crate) tail: Option<u32>,
    /// Continue with new lines.
    pub(crate) follow: bool,
}

/// What a source returns.
#[derive(Debug)]
enum Read {
    Line(TimedLine),
    /// A report about the source. Others do not wait for it any more.
    Problem(TimedLine),
    /// The lines up to the present have been returned.
    CaughtUp,
    /// A member has changed.
    Member(String),
}

type Source = BoxStream<'static, Read>;

/// Opens the logs of a workload.
pub(crate) async fn open(
    state: &ApiState,
    caller: Caller,
    id: WorkloadId,
    request: LogRequest,
) -> Result<impl Stream<Item = WorkloadLogLine> + Send + use<>, ApiProblem> {
    let LogRequest { selection, range, resume, after_event } = request;
    let opened = logs::open_workload(&state.engine, &caller, id, &selection).await?;
    let ports = state.engine.ports();
    let mut merged = Merged::new(ports.clock.clone(), ports.runtime.clone(), range);
    let reads_events = selection.sources.iter().any(|source| *source != LogSource::Journal);
    let may_join = range.follow && selection.members.is_empty() && selection.sources.contains(&LogSource::Journal);
    if reads_events || may_join {
        let reader = EventReader::new(state.engine.store(), &opened, &selection.sources, range, after_event);
        merged.prompt = Some(merged.add(event_source(reader, ports.clock.clone())));
    }
    if may_join {
        let known = opened.journals.iter().map(|journal| journal.name.clone()).collect();
        merged.joining = Some(Joining::new(state.clone(), caller.clone(), id, selection, known));
    }
    let (readable, refused): (Vec<_>, Vec<_>) = opened.journals.into_iter().partition(|journal| journal.access.is_ok());
    for journal in readable {
        let permit = state.streams.take(caller.principal.token)?;
        let position = resume.get(&journal.name).copied();
        merged.add(journal_source(state, id, journal, range, position, permit));
    }
    // A client that continues knows the others already.
    let refused = refused.into_iter().filter(|of| resume.is_empty() || resume.contains_key(&of.name));
    merged.add(stream::iter(refusals(ports.clock.now(), &refused.collect::<Vec<_>>())).boxed());
    Ok(stream::unfold(merged, |mut merged| async move {
        let line = merged.next().await?;
        Some((line.line, merged))
    }))
}

/// Reports the members whose journals cannot be read.
fn refusals(now: Timestamp, refused: &[MemberJournal]) -> Vec<Read> {
    let reported = refused.iter().filter_map(|journal| {
        let refusal = journal.access.as_ref().err()?;
        Some(TimedLine::refused(now, &journal.name, refusal))
    });
    let mut lines: Vec<TimedLine> = reported.take(REFUSED_REPORTED_MAX).collect();
    if let Some(more) = refused.len().checked_sub(REFUSED_REPORTED_MAX).filter(|more| *more > 0) {
        let text = format!("the journals of {more} more members cannot be read; name them with --member to see why");
        lines.push(TimedLine::problem(now, None, text));
    }
    lines.into_iter().map(Read::Problem).collect()
}

fn journal_source(
    state: &ApiState,
    workload: WorkloadId,
    journal: MemberJournal,
    range: Range,
    position: Option<LogPosition>,
    permit: StreamPermit,
) -> Source {
    let connection = NodeConnection::new(state, workload, &journal, permit);
    let reader = JournalReader::new(connection, (journal.name, journal.unit), range, position);
    stream::unfold(reader, |mut reader| async move {
        let read = reader.next().await?;
        Some((read, reader))
    })
    .boxed()
}

fn event_source(reader: EventReader, clock: Arc<dyn Clock>) -> Source {
    stream::unfold((reader, clock), |(mut reader, clock)| async move {
        let read = reader.next(|| clock.now()).await?;
        Some((read, (reader, clock)))
    })
    .boxed()
}

/// A source, and what it returned.
type Turn = (SourceNumber, Option<Read>, Source);

/// The merged lines.
struct Merged {
    clock: Arc<dyn Clock>,
    runtime: Arc<dyn Runtime>,
    merge: Merge<TimedLine>,
    /// Sources that are being read. Each is read by one line at a time, and only while it has room.
    reading: FuturesUnordered<BoxFuture<'static, Turn>>,
    /// Sources that wait for room.
    parked: Vec<(SourceNumber, Source)>,
    /// The source that returns its lines without delay.
    prompt: Option<SourceNumber>,
    /// Collects the last lines until the present is reached.
    tail: Option<Tail>,
    joining: Option<Joining>,
    /// Members that may have to be joined.
    changed: Vec<String>,
    /// Lines that are returned next.
    out: VecDeque<TimedLine>,
}

impl Merged {
    fn new(clock: Arc<dyn Clock>, runtime: Arc<dyn Runtime>, range: Range) -> Self {
        let merge = Merge::new(clock.now());
        Self {
            clock,
            runtime,
            merge,
            reading: FuturesUnordered::new(),
            parked: Vec::new(),
            prompt: None,
            tail: range.tail.map(Tail::new),
            joining: None,
            changed: Vec::new(),
            out: VecDeque::new(),
        }
    }

    fn add(&mut self, source: Source) -> SourceNumber {
        let number = self.merge.add();
        self.parked.push((number, source));
        number
    }

    /// Returns the next line; `None` at the end.
    async fn next(&mut self) -> Option<TimedLine> {
        loop {
            if let Some(line) = self.out.pop_front() {
                return Some(line);
            }
            self.read_ready();
            self.join_changed().await;
            let now = self.clock.now();
            let history = self.merge.history_over(now);
            if let Some(tail) = &mut self.tail
                && tail.is_complete(history.is_ok(), self.merge.waiting())
            {
                self.flush();
                continue;
            }
            match self.merge.next(now) {
                Next::Line(line) => match &mut self.tail {
                    Some(tail) => tail.push(line),
                    None => return Some(line),
                },
                Next::Ended if self.tail.is_some() => self.flush(),
                Next::Ended => return None,
                // A source that just returned something may have more.
                Next::Wait(_) if self.parked.iter().any(|(number, _)| self.merge.has_room(*number)) => {}
                Next::Wait(until) => {
                    let history_until = history.err().filter(|_| self.tail.is_some());
                    self.wait(until.into_iter().chain(history_until).min()).await;
                }
            }
        }
    }

    /// Returns the collected lines next.
    fn flush(&mut self) {
        self.out.extend(self.tail.take().into_iter().flat_map(Tail::into_lines));
    }

    /// Reads sources that have room, and takes what they return without waiting. Each returns at most one line before the next merge, so
    /// that none is read more often than the others.
    fn read_ready(&mut self) {
        for (number, source) in std::mem::take(&mut self.parked) {
            if self.merge.has_room(number) {
                let read = source.into_future().map(move |(read, source)| (number, read, source));
                self.reading.push(read.boxed());
            } else {
                self.parked.push((number, source));
            }
        }
        while let Some(Some(turn)) = self.reading.next().now_or_never() {
            self.take(turn);
        }
    }

    fn take(&mut self, (number, read, source): Turn) {
        let now = self.clock.now();
        match read {
            None => return self.merge.end(number),
            Some(Read::Line(line)) => self.merge.push(number, line.at, line.bytes(), now, line),
            Some(Read::Problem(line)) => {
                self.merge.push(number, line.at, line.bytes(), now, line);
                self.merge.caught_up(number, false);
            }
            Some(Read::CaughtUp) => self.merge.caught_up(number, self.prompt == Some(number)),
            Some(Read::Member(name)) => self.changed.push(name),
        }
        self.parked.push((number, source));
    }

    /// Adds the journals of members that are new.
    async fn join_changed(&mut self) {
        for name in std::mem::take(&mut self.changed) {
            let Some(joining) = &mut self.joining else { continue };
            if let Some(source) = joining.join(name).await {
                self.add(source);
            }
        }
    }

    /// Waits until a source returns something, at most until this time.
    async fn wait(&mut self, until: Option<Timestamp>) {
        let timer = match until {
            Some(until) => self.runtime.sleep_until(until),
            None => std::future::pending().boxed(),
        };
        let turn = tokio::select! {
            biased;
            turn = self.reading.next(), if !self.reading.is_empty() => turn,
            () = timer => None,
        };
        if let Some(turn) = turn {
            self.take(turn);
        }
    }
}

#[cfg(test)]
mod tests;
