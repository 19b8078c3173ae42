//! Collects the last lines of all sources together.

use std::collections::VecDeque;

use super::{TAIL_BYTES_MAX, line::TimedLine};

/// The last lines, at most a number of them and [`TAIL_BYTES_MAX`].
pub(super) struct Tail {
    lines_max: usize,
    lines: VecDeque<TimedLine>,
    bytes: usize,
    /// Number of lines that were dropped because of their length.
    too_long: u64,
    /// Lines that waited when the present was reached and are not collected yet.
    expected: Option<usize>,
}

impl Tail {
    pub(super) fn new(lines: u32) -> Self {
        let lines_max = usize::try_from(lines).unwrap_or(usize::MAX);
        Self { lines_max, lines: VecDeque::new(), bytes: 0, too_long: 0, expected: None }
    }

    /// Returns whether every line from before the present was collected. `waiting` is the number of lines that are not collected yet.
    pub(super) fn is_complete(&mut self, reached_present: bool, waiting: usize) -> bool {
        if reached_present {
            self.expected.get_or_insert(waiting);
        }
        self.expected == Some(0)
    }

    pub(super) fn push(&mut self, line: TimedLine) {
        self.expected = self.expected.map(|expected| expected.saturating_sub(1));
        self.bytes += line.bytes();
        self.lines.push_back(line);
        while self.lines.len() > self.lines_max || self.bytes > TAIL_BYTES_MAX {
            let Some(dropped) = self.lines.pop_front() else { return };
            self.too_long += u64::from(self.lines.len() < self.lines_max);
            self.bytes -= dropped.bytes();
        }
    }

    /// Returns the collected lines, with a report of those that are missing because they are too long.
    pub(super) fn into_lines(self) -> impl Iterator<Item = TimedLine> {
        let report = self.lines.front().filter(|_| self.too_long > 0).map(|first| {
            let text =
                format!("cut: the last lines have at most {} MiB; older ones are left out", TAIL_BYTES_MAX >> 20);
            TimedLine::problem(first.at, None, text)
        });
        report.into_iter().chain(self.lines)
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::Timestamp;

    use super::*;

    fn line(number: i64, length: usize) -> TimedLine {
        TimedLine::problem(Timestamp::from_millis(number), None, "x".repeat(length))
    }

    #[test]
    fn only_the_last_lines_are_kept_within_their_bytes() {
        let mut tail = Tail::new(3);
        (0..10).for_each(|number| tail.push(line(number, 5)));
        let times: Vec<i64> = tail.into_lines().map(|line| line.at.as_millis()).collect();
        assert_eq!(times, [7, 8, 9]);

        let mut tail = Tail::new(10_000);
        (0..1_000).for_each(|number| tail.push(line(number, 16 * 1_024)));
        let lines: Vec<TimedLine> = tail.into_lines().collect();
        assert!(lines[0].line.text.starts_with("cut: ") && lines.len() > 200, "{} lines", lines.len());
        assert!(lines.iter().map(TimedLine::bytes).sum::<usize>() <= TAIL_BYTES_MAX + 1_024);
        assert_eq!(lines.last().map(|line| line.at.as_millis()), Some(999));
    }

    #[test]
    fn tail_is_complete_when_the_lines_that_waited_at_the_present_were_collected() {
        let mut tail = Tail::new(0);
        assert!(!tail.is_complete(false, 0) && !tail.is_complete(true, 2));
        tail.push(line(1, 1));
        assert!(!tail.is_complete(true, 7), "later lines do not count");
        tail.push(line(2, 1));
        assert!(tail.is_complete(true, 7));
        assert_eq!(tail.into_lines().count(), 0);
    }
}
