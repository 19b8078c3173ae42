//! Lines of a workload's merged logs: where they come from, and positions from which reading continues.

use std::fmt;

use crate::{Timestamp, state::text_enum};

text_enum! {
    /// Where a line of a workload's logs comes from.
    LogSource {
        /// The journal of a member.
        Journal = "journal",
        /// Progress and ends of tasks.
        Task = "task",
        /// Events of the control plane.
        Event = "event",
    }
}

/// A position in a journal whose lines have a time but no number: the time of the last line that was read, and how many lines of that time
/// were read. A line is read again from its time on, and as many lines of that time are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Time of the last line.
    pub at: Timestamp,
    /// Number of lines of that time.
    pub lines: u32,
}

impl LogPosition {
    /// Returns the position after another line, of the time `at`.
    #[must_use]
    pub fn after(before: Option<Self>, at: Timestamp) -> Self {
        let same = before.filter(|before| before.at == at).map_or(0, |before| before.lines);
        Self { at, lines: same.saturating_add(1) }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.at, self.lines)
    }
}

impl std::str::FromStr for LogPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(at, lines)| Some((at.parse().ok()?, lines.parse().ok()?)));
        let (at, lines) =
            parts.ok_or_else(|| format!("{text:?} is not a position such as 2026-07-01T08:00:00.000Z/1"))?;
        Ok(Self { at, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_the_lines_of_one_time_and_is_parsed_as_printed() {
        let at = Timestamp::from_millis(1_790_000_000_007);
        let second = LogPosition::after(Some(LogPosition::after(None, at)), at);
        assert_eq!(second, LogPosition { at, lines: 2 });
        assert_eq!(second.to_string().parse(), Ok(second));
        assert_eq!(LogPosition::after(Some(second), Timestamp::from_millis(0)).lines, 1);
        for wrong in ["", "7", "2026-07-01T08:00:00.000Z", "2026-07-01T08:00:00.000Z/-1"] {
            assert!(wrong.parse::<LogPosition>().is_err(), "{wrong}");
        }
    }
}
