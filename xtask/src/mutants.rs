//! `cargo xtask mutants`: mutates the code, one change at a time, and lists the changes that no test notices.

use std::{path::Path, process::Command};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};

use crate::{shell, tools};

/// Minimum percentage of compiling changes that tests must notice.
const CAUGHT_MIN_PERCENT: usize = 85;
/// Simulation seeds per change of the engine: more seeds notice few more changes and take longer.
const SEEDS: &str = "16";

/// Number of concurrent tests: most tests that fail because of a change wait for a timeout.
const TESTS_AT_ONCE: &str = "16";

/// Options of `cargo xtask mutants`.
#[derive(Args)]
pub(crate) struct Options {
    /// Areas of code to change; all by default.
    #[arg(value_enum)]
    areas: Vec<Area>,
    /// Further arguments for `cargo mutants`, for example `--in-place` in an unused checkout, or `--file PATH`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// An area in which tests should notice every change.
#[derive(Clone, Copy, ValueEnum)]
enum Area {
    /// The planner, by its own tests and those of the app that it plans for.
    Planner,
    /// Envelopes, certificates and sealing, by their own tests.
    Trust,
    /// The engine's state machines and the states themselves, by their own tests, the scripted ones and the simulation.
    Engine,
}

impl Area {
    const ALL: [Self; 3] = [Self::Planner, Self::Trust, Self::Engine];

    fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Trust => "trust",
            Self::Engine => "engine",
        }
    }

    /// Files that are changed.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Planner => &["crates/planner/src/*.rs"],
            Self::Trust => &["crates/trust/src/*.rs"],
            Self::Engine => &[
                "crates/engine/src/begin.rs",
                "crates/engine/src/dispatch.rs",
                "crates/engine/src/driver.rs",
                "crates/engine/src/rows.rs",
                "crates/engine/src/members.rs",
                "crates/engine/src/outputs.rs",
                "crates/engine/src/settle.rs",
                "crates/engine/src/step/*.rs",
                "crates/engine/src/workload_status.rs",
                "crates/model/src/allocation.rs",
                "crates/model/src/member.rs",
                "crates/model/src/operation.rs",
                "crates/model/src/signing_key.rs",
                "crates/model/src/state.rs",
                "crates/model/src/task.rs",
                "crates/model/src/workload.rs",
            ],
        }
    }

    /// Tests that run first because they take seconds; all others run only for changes that these miss.
    fn quick_tests(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Planner | Self::Trust => None,
            Self::Engine => Some(&["--lib", "--test", "scripted"]),
        }
    }

    /// Crates whose tests should notice a change.
    fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Planner => &["gpuaas-planner", "gpuaas-app-rke2"],
            Self::Trust => &["gpuaas-trust"],
            Self::Engine => &["gpuaas-model", "gpuaas-engine", "gpuaas-engine-scripted"],
        }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let tool = tools::cargo_mutants()?;
    let areas = if options.areas.is_empty() { &Area::ALL[..] } else { &options.areas };
    let mut too_few = Vec::new();
    for area in areas {
        let found = mutate(&tool, *area, &options.more)?;
        println!("{}: {found}", area.name());
        ensure!(found.caught + found.missed.len() > 0, "no change of {} was tested", area.name());
        found.missed.iter().for_each(|missed| println!("    not noticed: {missed}"));
        if found.percent() < CAUGHT_MIN_PERCENT {
            too_few.push(area.name());
        }
    }
    ensure!(
        too_few.is_empty(),
        "tests notice fewer than {CAUGHT_MIN_PERCENT} % of the changes in {}",
        too_few.join(", ")
    );
    Ok(())
}

/// Results for an area.
struct Found {
    caught: usize,
    missed: Vec<String>,
    unviable: usize,
}

impl Found {
    fn percent(&self) -> usize {
        (self.caught * 100).checked_div(self.caught + self.missed.len()).unwrap_or(100)
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { caught, missed, unviable } = self;
        let all = caught + missed.len();
        write!(f, "{caught} of {all} changes noticed ({} %), {unviable} more do not compile", self.percent())
    }
}

fn mutate(tool: &Path, area: Area, more: &[String]) -> anyhow::Result<Found> {
    let output = shell::root().join("target/mutants").join(area.name());
    std::fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    let Some(quick) = area.quick_tests() else { return run_mutants(tool, area, &output, more, &[], &[]) };
    let first = run_mutants(tool, area, &output, more, &[], quick)?;
    if first.missed.is_empty() {
        return Ok(first);
    }
    let second = run_mutants(tool, area, &output, more, &first.missed, &[])?;
    Ok(Found { caught: first.caught + second.caught, missed: second.missed, unviable: first.unviable })
}

/// Runs these tests on these changes; an empty list means all of them.
fn run_mutants(
    tool: &Path,
    area: Area,
    output: &Path,
    more: &[String],
    changes: &[String],
    tests: &[&str],
) -> anyhow::Result<Found> {
    let mut command = Command::new(tool);
    command.current_dir(shell::root()).args(["mutants", "--all-features", "--no-shuffle", "--colors", "never"]);
    command.args(area.files().iter().flat_map(|file| ["--file", *file]));
    command.args(area.tests().iter().flat_map(|package| ["--test-package", *package]));
    command.arg("--output").arg(output).args(more);
    command.args(changes.iter().flat_map(|change| ["--re".to_owned(), format!("^{}$", regex::escape(change))]));
    if !tests.is_empty() {
        command.arg("--").args(tests);
    }
    command.env("GPUAAS_SEEDS", SEEDS).env("RUST_TEST_THREADS", TESTS_AT_ONCE);
    eprintln!("==> cargo mutants: {}", area.name());
    // The command fails if any change was missed; its report files have the details.
    command.status().with_context(|| format!("{command:?} could not be started"))?;
    let lines = |name: &str| -> anyhow::Result<Vec<String>> {
        let path = output.join("mutants.out").join(name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    // A change that causes a test timeout counts as noticed.
    let caught = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
    Ok(Found { caught, missed: lines("missed.txt")?, unviable: lines("unviable.txt")?.len() })
}
