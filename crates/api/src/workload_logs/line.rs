//! Lines of a workload's logs before they are merged.

use gpuaas_api_types::WorkloadLogLine;
use gpuaas_engine::CommandError;
use gpuaas_model::{Coded, LogPosition, LogSource, Timestamp};
use gpuaas_wire::session::JournalLine;

/// Bytes that a line takes beside its texts.
const OVERHEAD_BYTES: usize = size_of::<TimedLine>();
/// Source of lines that report what cannot be read.
const PROBLEM: &str = "problem";

/// A line with the time by which it is merged.
#[derive(Debug)]
pub(crate) struct TimedLine {
    pub(crate) at: Timestamp,
    pub(crate) line: WorkloadLogLine,
}

impl TimedLine {
    /// A line of a member's journal, with the position after it.
    pub(crate) fn of_journal(member: &str, unit: &str, read: JournalLine, position: LogPosition) -> Self {
        let line = WorkloadLogLine {
            member: Some(member.to_owned()),
            unit: Some(unit.to_owned()),
            position: Some(position.to_string()),
            ..plain(read.at, LogSource::Journal.as_str(), read.text)
        };
        Self { at: read.at, line }
    }

    /// A line about an object.
    pub(crate) fn about(at: Timestamp, source: LogSource, subject: String, text: String) -> Self {
        Self { at, line: WorkloadLogLine { subject: Some(subject), ..plain(at, source.as_str(), text) } }
    }

    /// A report about a member or, without one, about the logs as a whole.
    pub(crate) fn problem(at: Timestamp, member: Option<&str>, text: impl Into<String>) -> Self {
        Self { at, line: WorkloadLogLine { member: member.map(str::to_owned), ..plain(at, PROBLEM, text.into()) } }
    }

    /// A refusal or failure as a line, with its code and next action.
    pub(crate) fn refused(at: Timestamp, member: &str, refused: &CommandError) -> Self {
        let problem = Self::problem(at, Some(member), refused.to_string());
        let (code, next) = (Some(refused.code().to_string()), refused.next());
        Self { line: WorkloadLogLine { code, next, ..problem.line }, ..problem }
    }

    /// Returns the memory that the line takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let line = &self.line;
        let texts = [&line.member, &line.unit, &line.subject, &line.code, &line.next, &line.position];
        let optional: usize = texts.into_iter().flatten().map(String::len).sum();
        OVERHEAD_BYTES + line.at.len() + line.source.len() + line.text.len() + optional
    }
}

fn plain(at: Timestamp, source: &str, text: String) -> WorkloadLogLine {
    WorkloadLogLine { at: at.to_string(), source: source.to_owned(), text, ..WorkloadLogLine::default() }
}
