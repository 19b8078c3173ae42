//! The journal of one member, across broken connections to its node.
//!
//! Guarantees: a line is returned once, also if the node connects again; an outage is reported once, and so is its end. A journal ends with
//! a report if the project no longer holds the node, and without one at the present unless it is followed.
//!
//! Limits: the node's lines have times and no numbers. Lines that a node writes after its clock was set back are missing after a
//! reconnection, until the clock reaches the time of the last line before.

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use gpuaas_engine::{CommandError, commands::logs};
use gpuaas_model::{LogPosition, Timestamp};
use gpuaas_wire::session::{JOURNAL_BYTES_MAX, JOURNAL_LINES_MAX, JournalLine, JournalRequest};

use super::{Range, Read, line::TimedLine};

/// Most bytes that are read from one response: half of what the channel allows, so that the channel never cuts one.
const RESPONSE_BYTES_MAX: usize = JOURNAL_BYTES_MAX / 2;
/// Most lines that are read from one response.
const RESPONSE_LINES_MAX: usize = JOURNAL_LINES_MAX / 2;

/// Lines of a response; the error explains why it broke off.
pub(super) type Lines = BoxStream<'static, Result<JournalLine, String>>;

/// The path to a member's node.
#[async_trait]
pub(super) trait Connection: Send {
    /// Requests lines from the node, if the project holds it now. Unless `at_once`, waits until some time has passed since the last request.
    async fn request(&mut self, request: JournalRequest, at_once: bool) -> Result<Lines, CommandError>;

    /// Waits until another request may succeed.
    async fn changed(&mut self);

    /// The control plane's time.
    fn now(&self) -> Timestamp;
}

/// Reads a member's journal.
pub(super) struct JournalReader<C> {
    connection: C,
    member: String,
    unit: String,
    range: Range,
    /// Position after the last line that was returned.
    position: Option<LogPosition>,
    state: State,
    /// True once the journal was read up to the present.
    follows: bool,
    /// True from the report of an outage to that of its end.
    reported: bool,
}

enum State {
    /// No response is open.
    Closed {
        /// True if the next request is the continuation of one that succeeded.
        at_once: bool,
    },
    /// The last request failed.
    Failed,
    Open(Response),
    Ended,
}

/// An open response.
struct Response {
    lines: Lines,
    /// Lines of the position's time that it repeats.
    repeated: u32,
    bytes_left: usize,
    lines_left: usize,
    /// True once it brought a line that was not read before.
    progressed: bool,
}

impl Response {
    fn new(lines: Lines, position: Option<LogPosition>) -> Self {
        let repeated = position.map_or(0, |position| position.lines);
        Self { lines, repeated, bytes_left: RESPONSE_BYTES_MAX, lines_left: RESPONSE_LINES_MAX, progressed: false }
    }

    /// Counts a line; `false` if it exceeds the limits of a response.
    fn try_take(&mut self, line: &JournalLine) -> bool {
        let left = self.bytes_left.checked_sub(line.text.len()).zip(self.lines_left.checked_sub(1));
        if let Some((bytes, lines)) = left {
            (self.bytes_left, self.lines_left) = (bytes, lines);
        }
        left.is_some()
    }

    /// Returns whether the line was read before the response.
    fn repeats(&mut self, line: &JournalLine, position: Option<LogPosition>) -> bool {
        let Some(position) = position.filter(|_| !self.progressed) else { return false };
        if line.at == position.at && self.repeated > 0 {
            self.repeated -= 1;
            return true;
        }
        line.at < position.at
    }
}

impl<C: Connection> JournalReader<C> {
    /// Reads the unit of a member, after `position` if there is one.
    pub(super) fn new(
        connection: C,
        (member, unit): (String, String),
        range: Range,
        position: Option<LogPosition>,
    ) -> Self {
        let state = State::Closed { at_once: true };
        Self { connection, member, unit, range, position, state, follows: false, reported: false }
    }

    /// Returns the next line or report; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Read> {
        loop {
            let read = match &mut self.state {
                State::Ended => return None,
                State::Failed => {
                    self.connection.changed().await;
                    self.state = State::Closed { at_once: false };
                    None
                }
                State::Closed { at_once } => {
                    let at_once = *at_once;
                    self.open(at_once).await
                }
                State::Open(response) => {
                    let item = response.lines.next().await;
                    self.take(item)
                }
            };
            if read.is_some() {
                return read;
            }
        }
    }

    /// Opens a response. Returns the report of a failure, or of the end of an outage.
    async fn open(&mut self, at_once: bool) -> Option<Read> {
        match self.connection.request(self.request(), at_once).await {
            Ok(lines) => {
                self.state = State::Open(Response::new(lines, self.position));
                std::mem::take(&mut self.reported).then(|| self.report("its journal is read again"))
            }
            Err(refused) => {
                let is_final = logs::is_final(&refused);
                self.state = if self.range.follow && !is_final { State::Failed } else { State::Ended };
                let is_known = std::mem::replace(&mut self.reported, true) && !is_final;
                let line = TimedLine::refused(self.connection.now(), &self.member, &refused);
                (!is_known).then_some(Read::Problem(line))
            }
        }
    }

    /// Returns the request for what was not read yet.
    fn request(&self) -> JournalRequest {
        let (unit, follow) = (self.unit.clone(), self.follows);
        match self.position {
            Some(position) => JournalRequest { unit, since: Some(position.at), tail: None, follow },
            None => {
                // Without any line, the position would stay unknown.
                let tail = self.range.tail.map(|tail| tail.max(1)).filter(|_| !follow);
                JournalRequest { unit, since: self.range.since, tail, follow }
            }
        }
    }

    /// Handles an item of the open response, or its end.
    fn take(&mut self, item: Option<Result<JournalLine, String>>) -> Option<Read> {
        match item {
            Some(Ok(line)) => self.take_line(line),
            Some(Err(reason)) => {
                self.close(false);
                self.reported = true;
                Some(self.report(&format!("its journal broke off: {reason}")))
            }
            None => {
                let is_first = !std::mem::replace(&mut self.follows, true);
                self.close(is_first);
                is_first.then_some(Read::CaughtUp)
            }
        }
    }

    fn take_line(&mut self, line: JournalLine) -> Option<Read> {
        let State::Open(response) = &mut self.state else { return None };
        if !response.try_take(&line) {
            return self.cut();
        }
        if response.repeats(&line, self.position) {
            return None;
        }
        response.progressed = true;
        let position = LogPosition::after(self.position, line.at);
        self.position = Some(position);
        Some(Read::Line(TimedLine::of_journal(&self.member, &self.unit, line, position)))
    }

    /// Ends a response that reached its limits. A follower then asks for the lines after the last one.
    fn cut(&mut self) -> Option<Read> {
        let progressed = matches!(&self.state, State::Open(response) if response.progressed);
        if self.range.follow && progressed {
            self.close(false);
            return None;
        }
        self.state = State::Ended;
        let most = RESPONSE_BYTES_MAX >> 20;
        Some(match self.position.filter(|_| progressed) {
            Some(last) => self.report(&format!(
                "cut: one request reads at most {most} MiB of a journal; continue with --since {}",
                last.at
            )),
            None => self.report("cut: the journal has more lines of one moment than one request reads"),
        })
    }

    /// Closes the response; the next request follows, unless the journal is not followed.
    fn close(&mut self, at_once: bool) {
        self.state = if self.range.follow { State::Closed { at_once } } else { State::Ended };
    }

    fn report(&self, text: &str) -> Read {
        Read::Problem(TimedLine::problem(self.connection.now(), Some(&self.member), text))
    }
}

#[cfg(test)]
mod tests;
