//! Runs the tests and counts them by kind.

mod booted;
mod disk;
mod failures;
mod selection;
mod watched;

use std::{
    collections::BTreeMap,
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use camino::Utf8PathBuf;

use failures::Failures;
use selection::IntegrationTests;

use crate::{
    clients,
    components::{self, ComponentsOptions},
    demo, fuzz_api, lint, release, shell, tools, ui, ui_tests,
};

/// Tests that wait for deadlines, crashes or a second database: `--quick` skips them and prints that.
const SKIPPED_BY_QUICK: [&str; 10] = [
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

/// Longest silence of cargo and its tests: the longest test takes a third of it and prints its name at its end.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run the commit gate: form and the quick tests, within three minutes with warm caches.
    #[arg(long)]
    quick: bool,
    /// Run additional tests: every crash point with every victim, about half an hour.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Switch on one deliberate bug after the other, print which oracle of the simulation notices it, and fail if none does.
    #[arg(long, conflicts_with_all = ["quick", "full"])]
    bugs: bool,
}

/// Runs the checks of form first, then tests, API fuzzing and the demo, and booted machines last.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.bugs {
        return deliberate_bugs();
    }
    let began = Instant::now();
    disk::require_free_space()?;
    if !options.quick {
        // First, so that what embeds it is compiled once.
        ui::build_if_possible()?;
    }
    lint::form()?;
    shell::build_programs()?;
    shell::run("building the tests", shell::cargo(&["test", "--quiet", "--no-run"]).args(EVERYTHING))?;
    let tests = IntegrationTests::of_the_workspace()?;
    let (mut counts, mut computed) = (Counts::default(), Counts::default());
    let units = ["--lib", "--bins"].map(str::to_owned);
    let (first, release) = thread::scope(|scope| {
        let release = scope.spawn(|| at_low_priority(build_release));
        let first = cargo_test(&[&units[..], &tests.others].concat(), options, &[], &mut counts);
        (first, joined(release))
    });
    let release = release?;
    let (sender, prepared) = mpsc::channel();
    let (waiting, computing) = thread::scope(|scope| {
        let (tests, computed) = (&tests, &mut computed);
        // `computing` owns the sender, so that it is dropped when computing ends for any reason and the receiver stops waiting.
        let computing = scope.spawn(move || at_low_priority(|| compute(tests, options, sender, computed)));
        let waiting = wait(first, tests, options, &release, prepared, &mut counts);
        (waiting, joined(computing))
    });
    counts.add(computed);
    counts.print();
    waiting.and(computing)?;
    eprintln!("==> {:.0} s in total", began.elapsed().as_secs_f64());
    Ok(())
}

/// Plays whole lives with each deliberate bug of `crates/bugs`: a few minutes.
fn deliberate_bugs() -> anyhow::Result<()> {
    let mut command = shell::cargo(&["test", "--quiet"]);
    command.args(EVERYTHING).args(["--test", "simulation", "bugs::", "--", "--ignored", "--nocapture"]);
    shell::run("the deliberate bugs", &mut command)
}

/// Runs everything that mostly waits: tests that deploy, the kill matrix (`--full`), API fuzzing, generated clients, the shell in a browser,
/// the demo and booted machines. After a failed test, nothing else begins but the other tests.
fn wait(
    first: anyhow::Result<()>,
    tests: &IntegrationTests,
    options: &Options,
    release: &Release,
    prepared: Receiver<anyhow::Result<()>>,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let environment =
        [("GPUAAS_TEST_RELEASE", release.dir.as_str()), (components::DIR_VARIABLE, release.components.as_str())];
    let (mut deployed, is_well) = (Counts::default(), first.is_ok());
    let (platform, deploying) = thread::scope(|scope| {
        let deployed = &mut deployed;
        let deploying =
            scope.spawn(move || deploy_beside(tests, options, (&environment, &prepared), is_well, deployed));
        let platform = cargo_test(&tests.platform, options, &at_once(&environment, deployments_at_once()), counts);
        (platform, joined(deploying))
    });
    counts.add(deployed);
    first.and(platform).and(deploying)?;
    if options.full {
        eprintln!("==> every crash point and every victim");
        let mut matrix = shell::cargo(&["test", "--quiet"]);
        matrix.args(EVERYTHING).args(["--test", "platform"]);
        matrix.args(["kills::every_point_and_every_victim", "--", "--ignored", "--nocapture"]);
        shell::run("the kill matrix", matrix.envs(at_once(&environment, deployments_at_once())))?;
    }
    if options.quick {
        for kind in [clients::KIND, ui_tests::KIND, booted::KIND] {
            counts.figures.push(format!("{kind}: NOT RUN: skipped by --quick"));
        }
        return Ok(());
    }
    eprintln!("==> ui-tests");
    counts.take_passed(ui_tests::KIND, ui_tests::test()?);
    eprintln!("==> demo --once");
    demo::run(&demo::Options::once())?;
    eprintln!("==> demo --once --lifecycle --sabotage all");
    demo::run(&demo::Options::lifecycle())?;
    match booted::run()? {
        Ok(passed) => *counts.passed.entry(booted::KIND).or_default() += passed,
        Err(why) => counts.figures.push(format!("{}: NOT RUN: {why}", booted::KIND)),
    }
    Ok(())
}

/// Runs what deploys in less time than the test of whole programs, beside it: the other tests, API fuzzing and the generated clients. Returns
/// when booted machines are prepared, too. Unless everything before `is_well`, only the tests run.
fn deploy_beside(
    tests: &IntegrationTests,
    options: &Options,
    (environment, prepared): (&[(&'static str, &str)], &Receiver<anyhow::Result<()>>),
    is_well: bool,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    // One per core: the test of whole programs runs at the same time.
    cargo_test(&tests.deploying, options, &at_once(environment, deployments_at_once() / 2), counts)?;
    if options.quick || !is_well {
        return Ok(());
    }
    let prepared = prepared.recv().context("the preparation ended without a result")?;
    eprintln!("==> fuzz-api --bounded");
    fuzz_api::run_bounded()?;
    eprintln!("==> clients");
    for (language, outcome) in clients::test()? {
        match outcome {
            Ok(()) => *counts.passed.entry(clients::KIND).or_default() += 1,
            Err(why) => counts.figures.push(format!("{}: {language}: NOT RUN: {why}", clients::KIND)),
        }
    }
    prepared
}

/// Adds the number of tests that a test binary runs at the same time to the environment.
fn at_once(environment: &[(&'static str, &str)], tests: usize) -> Vec<(&'static str, String)> {
    let given = environment.iter().map(|(name, value)| (*name, (*value).to_owned()));
    given.chain([("RUST_TEST_THREADS", tests.to_string())]).collect()
}

/// Runs everything that mostly computes, in parallel with `wait`: first the parts that `wait` needs later, last the work that keeps every
/// core busy.
fn compute(
    tests: &IntegrationTests,
    options: &Options,
    prepared: Sender<anyhow::Result<()>>,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    if !options.quick {
        clients::prepare();
        // Where that fails, the tests say so.
        let _ = ui_tests::prepare();
        // After a failed test the receiver no longer exists.
        let _ = prepared.send(fuzz_api::prepare().and_then(|()| booted::prepare()));
    }
    let checked = ui_tests::check().map(|passed| counts.take_passed(ui_tests::LOGIC, passed));
    let denied = tools::deny();
    cargo_test(&tests.computing, options, &[], counts).and(checked).and(denied)
}

/// Arguments that all runs of cargo share, so that no run recompiles anything.
const EVERYTHING: [&str; 3] = ["--workspace", "--all-features", "--locked"];

/// The release that tests deploy, and its components.
struct Release {
    dir: Utf8PathBuf,
    components: Utf8PathBuf,
}

/// Number of concurrent deployments, twice the number of cores: tests mostly wait for what they deploy.
fn deployments_at_once() -> usize {
    2 * thread::available_parallelism().map_or(1, usize::from)
}

/// Builds a release with the genuine Kubernetes components: minutes the first time, later from the cache.
fn build_release() -> anyhow::Result<Release> {
    let components =
        components::ensure(&ComponentsOptions { download: false, dir: None }, components::Part::ControlPlane)?;
    let components_dir = components.dir.clone();
    let options = release::ReleaseOptions { components, node: None, rke2: None, profile: "dev".to_owned(), out: None };
    Ok(Release { dir: release::build(&options)?, components: components_dir })
}

/// Runs `work` with low priority, so that tests that mostly wait are not delayed. The calling thread and its children keep the low
/// priority.
fn at_low_priority<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    const LOWERED_BY: i32 = 19;
    rustix::process::nice(LOWERED_BY)?;
    work()
}

fn joined<T>(handle: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    handle.join().unwrap_or_else(|_| Err(anyhow!("a thread next to the tests panicked")))
}

/// Tests that ran, by kind. Crate and file of a test binary and the path of a test determine its kind.
#[derive(Default)]
struct Counts {
    passed: BTreeMap<&'static str, u32>,
    failed: u32,
    /// Lines in which tests report how much they tried.
    figures: Vec<String>,
    failures: Failures,
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

    /// Adds the tests that passed, by kind, or the reason why none of `kind` ran.
    fn take_passed(&mut self, kind: &str, outcome: Result<ui_tests::Passed, String>) {
        match outcome {
            Ok(passed) => passed.into_iter().for_each(|(kind, number)| *self.passed.entry(kind).or_default() += number),
            Err(why) => self.figures.push(format!("{kind}: NOT RUN: {why}")),
        }
    }

    fn add(&mut self, other: Self) {
        for (kind, count) in other.passed {
            *self.passed.entry(kind).or_default() += count;
        }
        self.failed += other.failed;
        self.figures.extend(other.figures);
        self.failures.add(other.failures);
    }

    fn print(&self) {
        eprintln!("==> tests by kind");
        for (kind, count) in &self.passed {
            eprintln!("    {kind:<24}{count:>6}");
        }
        for figures in &self.figures {
            eprintln!("    {figures}");
        }
        self.failures.print();
        let passed: u32 = self.passed.values().sum();
        // Continuous integration parses this line.
        println!("{passed} passed, {} failed", self.failed);
    }
}

fn kind(binary: &str, name: &str) -> &'static str {
    let contains = |word: &str| name.contains(word) || binary.contains(word);
    match () {
        () if binary.contains("contract") && name.starts_with("sqlite::") => "store on SQLite",
        () if binary.contains("contract") && ["postgres::", "shared::"].iter().any(|on| name.starts_with(on)) => {
            "store on PostgreSQL"
        }
        () if binary.contains("sandbox_contract") => "host contract",
        () if binary.contains("systemd_contract") => "host contract, systemd",
        () if contains("replicas::") => "replicas",
        () if binary.contains("platform") && name.starts_with("install::") => "installation",
        () if binary.contains("platform") && name.starts_with("kills::") => "crash cells",
        () if binary.contains("platform") && name.starts_with("roles::") => "roles × routes",
        () if contains("property") || contains("random") => "property",
        () if contains("golden") => "golden",
        () if contains("hostile") || contains("bad_input") => "hostile and bad input",
        () if contains("simulation") => "simulation",
        () if contains("kubectl") || binary.contains("tests/cluster.rs") => "kubectl",
        () if binary.contains("kube") && binary.contains("tests/") => "apiserver",
        () if binary.contains("tests/") => "integration",
        () => "unit",
    }
}

fn cargo_test(
    chosen: &[String],
    options: &Options,
    environment: &[(&'static str, String)],
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let mut command = shell::cargo(&["test", "--no-fail-fast"]);
    command.args(EVERYTHING).args(chosen);
    eprintln!("==> cargo test {}", chosen.join(" "));
    command.envs(environment.iter().cloned());
    command.args(["--", "--show-output"]);
    if options.quick {
        command.args(SKIPPED_BY_QUICK.iter().flat_map(|name| ["--skip", name]));
        eprintln!("    skipped by --quick: {}", SKIPPED_BY_QUICK.join(", "));
    }
    // Binary names go to stderr and tests to stdout; the order of lines tells which belong together.
    let (mut binary, mut of_passed) = (String::new(), false);
    let status = watched::run(command, SILENCE_MAX, |line| {
        if let Some(running) = line.trim_start().strip_prefix("Running ") {
            binary = running.to_owned();
        }
        counts.take(&binary, line);
        let dull = line.starts_with("test ") && line.ends_with("... ok");
        // Lines about how much a test tried, and about what did not run.
        let is_figure = ["roles × routes: ", "simulation: ", "hostile: ", "start matrix of ", "NOT RUN: "]
            .iter()
            .any(|of| line.trim_start().starts_with(of));
        counts.figures.extend(is_figure.then(|| line.trim().to_owned()));
        // Output of passed tests is only for manual runs.
        of_passed = match line.trim_end() {
            "successes:" => true,
            "failures:" => false,
            other => of_passed && !other.starts_with("test result"),
        };
        if !of_passed {
            counts.failures.take(line);
        }
        if !dull && !of_passed && !line.is_empty() {
            println!("{line}");
        }
    })?;
    ensure!(status.success(), "tests failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_by_kind_and_failures_separately() {
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
