//! What failed tests printed, kept for the end of a run, so that the last lines of a long log say why it is red.

/// Lines kept of each failed test; a panic message is among the first.
const LINES_MAX: usize = 24;

/// The output of failed tests, from the lines of `cargo test`.
#[derive(Default)]
pub(super) struct Failures {
    /// The name of each failed test with the first lines that it printed.
    outputs: Vec<(String, Vec<String>)>,
    is_within: bool,
}

impl Failures {
    /// Takes the next line of `cargo test` that is not about passed tests, whose output has the same headings.
    pub(super) fn take(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.outputs.push((name.to_owned(), Vec::new()));
            self.is_within = true;
        } else if ["failures:", "test result: "].iter().any(|end| line.starts_with(end)) {
            self.is_within = false;
        } else if let Some((_, lines)) = self.outputs.last_mut().filter(|_| self.is_within)
            && lines.len() < LINES_MAX
            && !line.trim().is_empty()
        {
            lines.push(line.to_owned());
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.outputs.extend(other.outputs);
    }

    pub(super) fn print(&self) {
        for (name, lines) in &self.outputs {
            eprintln!("==> failed: {name}");
            lines.iter().for_each(|line| eprintln!("    {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_of_each_failed_test_are_kept() {
        let mut failures = Failures::default();
        let mut lines = vec!["failures:", "", "---- one::red stdout ----", "panicked at src/a.rs:1:", "left: 1"];
        let many = vec!["more"; LINES_MAX];
        lines.extend(many);
        lines.extend(["---- two::red stdout ----", "gone", "failures:", "    one::red", "test result: FAILED."]);
        lines.into_iter().for_each(|line| failures.take(line));
        let kept: Vec<(&str, usize)> =
            failures.outputs.iter().map(|(name, lines)| (name.as_str(), lines.len())).collect();
        assert_eq!(kept, [("one::red", LINES_MAX), ("two::red", 1)]);
        assert_eq!(failures.outputs[0].1[0], "panicked at src/a.rs:1:");
    }
}
