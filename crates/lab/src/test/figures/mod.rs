//! Measurements on booted nodes, printed next to their targets; a missed target is no failure, because a busy machine makes figures larger.
//!
//! Guarantees: all times are from one clock, since nodes share this machine's. Memory and CPU time of the agent are the kernel's figures.
//!
//! Deliberately absent: what sandbox nodes show as well. `cargo xtask bench main-job` measures the platform's share of a deployment, the
//! round trip of a task, and an idle agent's memory.

mod agent;
mod enroll;
mod logs;

use std::fmt::Write;

use anyhow::bail;

use super::{
    control_plane::ControlPlane,
    parts::{Part, Prepared},
};
use crate::node::Lab;

/// One server and one agent.
pub(super) const NODES: u8 = 2;
/// Parts that must be built.
pub(super) const NEEDS: &[Part] = &[Part::Programs, Part::Packages, Part::Release];
/// Name of the workload.
const WORKLOAD: &str = "measured";

/// A measured quantity.
struct Figure {
    what: &'static str,
    unit: &'static str,
    /// Upper limit, if any.
    target: Option<f64>,
    values: Vec<f64>,
}

impl Figure {
    fn of(what: &'static str, unit: &'static str, target: impl Into<Option<f64>>, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { what, unit, target: target.into(), values }
    }

    fn line(&self) -> String {
        let (first, last) =
            (self.values.first().copied().unwrap_or(f64::NAN), self.values.last().copied().unwrap_or(f64::NAN));
        let middle = self.values.get(self.values.len() / 2).copied().unwrap_or(f64::NAN);
        let mut line = format!("  {:<52}", self.what);
        // Writing into a `String` does not fail.
        let _ = match self.values.len() {
            0 | 1 => write!(line, "{middle:>31.2} {:<8}", self.unit),
            many => write!(line, "{first:>9.2} ·{middle:>9.2} ·{last:>9.2} {:<8}({many} values)", self.unit),
        };
        let _ = self.target.map(|target| write!(line, "   (target {target} {})", self.unit));
        line
    }
}

/// Runs all measurements.
pub(super) fn run_scenario(lab: &Lab, given: &Prepared) -> anyhow::Result<()> {
    let platform = ControlPlane::start(lab, given)?;
    platform.import(given.path(Part::Release)?)?;
    let nodes = lab.nodes()?;
    let [server, measured] = nodes.as_slice() else { bail!("the lab has {} nodes, not {NODES}", nodes.len()) };
    println!("  {:<52}{:>9} ·{:>9} ·{:>9}", "", "least", "median", "most");
    let runs: usize = given.wanted().first().and_then(|runs| runs.parse().ok()).unwrap_or(1);
    print(&enroll::measure(&platform, server, runs)?);
    for node in &nodes {
        platform.register_and_enroll(node)?;
        platform.allocate(node.name().as_str())?;
    }
    print(&agent::idle(measured)?);
    print(&agent::after_tasks(&platform, measured)?);
    let placement = ["--server", server.name().as_str(), "--agent", measured.name().as_str()];
    platform.run_operation(&[&["workload", "deploy", "rke2", "--name", WORKLOAD][..], &placement].concat())?;
    print(&logs::measure(&platform, measured)?);
    Ok(())
}

fn print(figures: &[Figure]) {
    figures.iter().for_each(|figure| println!("{}", figure.line()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_shows_its_spread_and_its_target() {
        let several = Figure::of("enrolling", "s", 3.0, vec![2.0, 1.0, 4.0]).line();
        assert!(
            several.contains("1.00 ·     2.00 ·     4.00 s") && several.ends_with("(3 values)   (target 3 s)"),
            "{several}"
        );
        let one = Figure::of("memory", "MB", None, vec![9.5]).line();
        assert!(one.trim_end().ends_with("9.50 MB"), "{one}");
    }
}
