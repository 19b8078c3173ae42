//! The result table: each cell's row is printed as soon as the cell ends.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Result of a cell that passed.
pub(super) struct CellResult {
    /// How the fault was handled.
    pub(super) outcome: String,
    /// What the node's own tools or files show of the fault, one entry each.
    pub(super) proof: Vec<String>,
}

impl CellResult {
    pub(super) fn new(outcome: impl Into<String>, proof: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let proof: Vec<String> = proof.into_iter().map(|line| one_line(&line)).collect();
        // Without proof, the fault may never have existed.
        anyhow::ensure!(
            !proof.is_empty() && proof.iter().all(|line| !line.is_empty()),
            "the fault has no proof: {proof:?}"
        );
        Ok(Self { outcome: one_line(&outcome.into()), proof })
    }
}

/// Joins the words of a text with single spaces.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The table so far.
pub(super) struct Table {
    began: Instant,
    failed: Vec<&'static str>,
    rows: usize,
}

impl Table {
    pub(super) fn begin() -> Self {
        println!("    {:<26} {:>7}  {:<70} PROOF", "CELL", "SECONDS", "OUTCOME");
        Self { began: Instant::now(), failed: Vec::new(), rows: 0 }
    }

    /// Prints a row.
    pub(super) fn row(&mut self, name: &'static str, took: Duration, result: &anyhow::Result<CellResult>) {
        self.rows += 1;
        let seconds = took.as_secs_f64();
        match result {
            Ok(result) => println!("  ✓ {name:<26} {seconds:>7.1}  {:<70} {}", result.outcome, result.proof.join("; ")),
            Err(error) => {
                self.failed.push(name);
                println!("  ✗ {name:<26} {seconds:>7.1}  {error:#}");
            }
        }
    }

    /// Ends the table; fails if any cell failed.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        println!("  {} cells, {} failed, {seconds:.0} s", self.rows, self.failed.len());
        if self.failed.is_empty() {
            return Ok(());
        }
        bail!("these cells failed: {}", self.failed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_without_proof_is_refused() {
        assert!(CellResult::new("refused", []).is_err());
        assert!(CellResult::new("refused", [" \n".to_owned()]).is_err());
        let result = CellResult::new("refused\n  next", ["ro,\n noexec".to_owned()]).expect("a result with proof");
        assert_eq!((result.outcome.as_str(), result.proof[0].as_str()), ("refused next", "ro, noexec"));
    }

    #[test]
    fn failed_row_is_named_at_the_end() {
        let mut table = Table::begin();
        table.row("one", Duration::ZERO, &CellResult::new("well", ["seen".to_owned()]));
        table.row("two", Duration::ZERO, &Err(anyhow::anyhow!("no")));
        let error = table.end().expect_err("one failed").to_string();
        assert_eq!(error, "these cells failed: two");
    }
}
