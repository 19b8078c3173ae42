//! Runs the tests and counts them by kind.

mod booted;
mod disk;
mod watched;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::bail;
use camino::Utf8Path;

use crate::{components, demo, fuzz_api, lint, release, shell};

/// Tests that wait for deadlines, deaths or a second database: the commit gate goes without them, and says so.
const LEFT_OUT_OF_QUICK: [&str; 10] = [
    "postgres::",
    "shared::",
    "backups::",
    "kills::",
    "kubectl::",
    "distribution_faults::",
    "cancels::",
    "restarts::",
    "replicas::",
    "placements::",
];

/// Longest silence of cargo and its tests: the longest test takes a third of it, and prints its name when it ends.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// How much of it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The commit gate: form and the quick tests, within three minutes when warm.
    #[arg(long)]
    quick: bool,
    /// Beyond everything: every crash point with every victim, about half an hour.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
}

/// Lint first, tests, the demo, and booted machines last.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let began = Instant::now();
    disk::require_room()?;
    lint::run()?;
    // Tests that deploy need genuine Kubernetes parts: minutes once, then they lie in the cache.
    let components = components::ensure(
        &components::ComponentsOptions { download: false, dir: None },
        components::Part::ControlPlane,
    )?;
    let genuine = components.dir.clone();
    let release_options =
        release::ReleaseOptions { components, node: None, rke2: None, profile: "dev".to_owned(), out: None };
    let release = release::build(&release_options)?;
    let mut counts = Counts::default();
    let arguments = ["test", "--workspace", "--all-features", "--locked", "--no-fail-fast"];
    cargo_test(
        &arguments,
        options,
        &[("GPUAAS_TEST_RELEASE", &release), (components::DIR_VARIABLE, &genuine)],
        &mut counts,
    )?;
    if options.full {
        eprintln!("==> every crash point and every victim");
        let mut matrix =
            shell::cargo(&["test", "--quiet", "--package", "gpuaas-cli", "--all-features", "--test", "platform"]);
        matrix.args(["kills::every_point_and_every_victim", "--", "--ignored", "--nocapture"]);
        shell::run("the kill matrix", matrix.env("GPUAAS_TEST_RELEASE", &release))?;
    }
    if !options.quick {
        eprintln!("==> fuzz-api --bounded");
        fuzz_api::run_bounded()?;
        eprintln!("==> demo --once");
        demo::run(&demo::Options::once())?;
        match booted::run()? {
            Ok(held) => *counts.passed.entry(booted::KIND).or_default() += held,
            Err(why) => counts.figures.push(format!("{}: NOT RUN: {why}", booted::KIND)),
        }
    } else {
        counts.figures.push(format!("{}: NOT RUN: left out of the quick run", booted::KIND));
    }
    counts.print();
    eprintln!("==> all of it took {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Tests that ran, by kind. A kind is told by the crate and file of a test binary and the path of the test in it.
#[derive(Default)]
struct Counts {
    passed: BTreeMap<&'static str, u32>,
    failed: u32,
    /// What tests say of how much they tried.
    figures: Vec<String>,
}

impl Counts {
    fn take(&mut self, binary: &str, line: &str) {
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            return;
        };
        match outcome.trim() {
            "ok" => *self.passed.entry(kind(binary, name)).or_default() += 1,
            "FAILED" => self.failed += 1,
            _ => {}
        }
    }

    fn print(&self) {
        eprintln!("==> tests by kind");
        for (kind, count) in &self.passed {
            eprintln!("    {kind:<24}{count:>6}");
        }
        for figures in &self.figures {
            eprintln!("    {figures}");
        }
        let passed: u32 = self.passed.values().sum();
        // In this form continuous integration counts them.
        println!("{passed} passed, {} failed", self.failed);
    }
}

fn kind(binary: &str, name: &str) -> &'static str {
    let says = |word: &str| name.contains(word) || binary.contains(word);
    match () {
        () if binary.contains("contract") && name.starts_with("sqlite::") => "store on SQLite",
        () if binary.contains("contract") && ["postgres::", "shared::"].iter().any(|on| name.starts_with(on)) => {
            "store on PostgreSQL"
        }
        () if binary.contains("sandbox_contract") => "host contract",
        () if says("replicas::") => "replicas",
        () if binary.contains("platform") && name.starts_with("install::") => "installation",
        () if binary.contains("platform") && name.starts_with("kills::") => "crash cells",
        () if binary.contains("platform") && name.starts_with("roles::") => "roles × routes",
        () if says("property") || says("random") => "property",
        () if says("golden") => "golden",
        () if says("hostile") || says("bad_input") => "hostile and bad input",
        () if says("simulation") => "simulation",
        () if says("kubectl") || binary.contains("tests/cluster.rs") => "kubectl",
        () if binary.contains("kube") && binary.contains("tests/") => "apiserver",
        () if binary.contains("tests/") => "integration",
        () => "unit",
    }
}

fn cargo_test(
    arguments: &[&str],
    options: &Options,
    environment: &[(&str, &Utf8Path)],
    counts: &mut Counts,
) -> anyhow::Result<()> {
    eprintln!("==> cargo {}", arguments.join(" "));
    let mut command = shell::cargo(arguments);
    command.envs(environment.iter().map(|(name, value)| (name, value.as_str())));
    command.args(["--", "--show-output"]);
    if options.quick {
        command.args(LEFT_OUT_OF_QUICK.iter().flat_map(|name| ["--skip", name]));
        eprintln!("    left out of the quick run: {}", LEFT_OUT_OF_QUICK.join(", "));
    }
    // A binary's name goes to stderr, its tests to stdout, and their order tells which is whose.
    let (mut binary, mut of_passed) = (String::new(), false);
    let status = watched::run(command, SILENCE_MAX, |line| {
        if let Some(running) = line.trim_start().strip_prefix("Running ") {
            binary = running.to_owned();
        }
        counts.take(&binary, line);
        let dull = line.starts_with("test ") && line.ends_with("... ok");
        // How much a test tried, where it says so.
        let said = ["roles × routes: ", "simulation: ", "hostile: "].iter().any(|of| line.trim_start().starts_with(of));
        counts.figures.extend(said.then(|| line.trim().to_owned()));
        // What passed tests say is for those who run them by hand.
        of_passed = match line.trim_end() {
            "successes:" => true,
            "failures:" => false,
            other => of_passed && !other.starts_with("test result"),
        };
        if !dull && !of_passed && !line.is_empty() {
            println!("{line}");
        }
    })?;
    if !status.success() {
        counts.print();
        bail!("tests failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_by_kind_and_failures_apart() {
        let mut counts = Counts::default();
        counts.take("unittests src/lib.rs (target/debug/deps/gpuaas_model-1)", "test id::tests::ids_sort ... ok");
        counts.take("tests/contract.rs (target/debug/deps/contract-1)", "test sqlite::leases::one ... ok");
        counts.take("tests/contract.rs (target/debug/deps/contract-1)", "test shared::fences::two ... FAILED");
        counts.take("tests/platform/main.rs (target/debug/deps/platform-1)", "test replicas::one ... ok");
        counts.take("", "running 3 tests");
        let passed = [("replicas", 1), ("store on SQLite", 1), ("unit", 1)];
        assert_eq!((counts.passed, counts.failed), (BTreeMap::from(passed), 1));
    }
}
