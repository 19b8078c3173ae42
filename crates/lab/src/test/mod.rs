//! `lab test`: runs on booted nodes, each between two inventories of this machine that must not differ.
//!
//! Guarantees: whatever happens in a run (a failure, Ctrl-C, a crash of its processes), the lab is removed afterwards and the machine is
//! inspected again. A run executes in a separate process, which is killed, not asked to end; `down` cleans up as after a crash.
//!
//! Deliberately absent: what is deployed onto the nodes. Each scenario defines that; [`SCENARIOS`] lists them.

mod baseline;
mod check;
mod cluster;
mod command_output;
mod contract;
mod control_plane;
mod evidence;
mod faults;
mod figures;
mod following;
mod lifecycle;
mod listing;
mod machines;
mod operations;
mod parts;
mod rke2;
mod scenario;

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, Error, bail, ensure};
use camino::Utf8PathBuf;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{
    down,
    inventory::Inventory,
    lock::LabLock,
    node::Lab,
    packages, place,
    refusal::{INTERRUPTED, Refusal},
    remains,
    resource::Resource,
    space,
    state::State,
};
pub use contract::{HELPER as CONTRACT_HELPER, TEST as CONTRACT_TEST};
pub use lifecycle::EXPOSURE_TENTHS_MAX;
use parts::Prepared;
pub use parts::{Builder, Part, Sources};
use scenario::{Outcome, Run, Scenario};

/// Scenarios that run on a running lab by default.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "baseline", nodes: 3, needs: &[], run: baseline::run_scenario },
    Scenario { name: "contract", nodes: 1, needs: &[Part::Contract], run: contract::run_scenario },
    Scenario {
        name: "lifecycle",
        nodes: 2,
        needs: &[Part::Packages, Part::PackagesNewer],
        run: lifecycle::run_scenario,
    },
    Scenario {
        name: "rke2",
        nodes: 3,
        needs: &[Part::Programs, Part::Packages, Part::Release, Part::Kubectl],
        run: rke2::run_scenario,
    },
    Scenario {
        name: rke2::life::NAME,
        nodes: 3,
        needs: &[Part::Programs, Part::Packages, Part::Release, Part::Kubectl],
        run: rke2::life::run_scenario,
    },
];

/// Scenarios that run only on request: they take longer or are no tests.
const FAULTS: Scenario =
    Scenario { name: "faults", nodes: faults::NODES, needs: faults::NEEDS, run: faults::run_scenario };
const FIGURES: Scenario =
    Scenario { name: "figures", nodes: figures::NODES, needs: figures::NEEDS, run: figures::run_scenario };

/// Options of `lab test`.
#[derive(clap::Args)]
pub struct TestOptions {
    /// Names of the scenarios and other runs; without any, all of them.
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Leave the lab and its control plane running after a failed scenario.
    #[arg(long)]
    keep: bool,
    /// Run the fault tests instead, and print a table with a row for each.
    #[arg(long, conflicts_with = "runs")]
    faults: bool,
    /// Run only this fault test; repeatable.
    #[arg(long, value_name = "CELL", requires = "faults")]
    only: Vec<String>,
    /// Break this state of the scenario `life` on purpose, to see that its check fails. An unknown name lists them.
    #[arg(long, value_name = "STATE", conflicts_with = "faults")]
    sabotage: Option<String>,
}

impl TestOptions {
    /// Options for these runs, with programs built here.
    pub(crate) fn of(names: &[&str]) -> Self {
        let runs = names.iter().map(|name| (*name).to_owned()).collect();
        Self { runs, sources: Sources::default(), keep: false, faults: false, only: Vec::new(), sabotage: None }
    }

    /// Selects the requested ones of all runs, in the order of `all`.
    fn chosen<'a>(&self, all: &'a [Run]) -> Vec<&'a Run> {
        all.iter().filter(|run| self.runs.is_empty() || self.runs.iter().any(|name| name == run.name())).collect()
    }
}

/// Options of the hidden command `lab scenario`.
#[derive(clap::Args)]
pub struct ScenarioOptions {
    name: String,
    #[arg(long, value_name = "PID")]
    within: i32,
    #[arg(long, value_name = "FILE")]
    given: Utf8PathBuf,
}

/// Executes the runs; returns how many of their checks passed.
pub(crate) fn run(options: &TestOptions, builder: &dyn Builder) -> anyhow::Result<u32> {
    if options.faults {
        faults::check_names(&options.only)?;
        return execute(options, vec![Run::Scenario(&FAULTS)], &options.only, builder);
    }
    let wanted = options.sabotage.as_slice();
    if let [state] = wanted {
        ensure!(options.runs == [rke2::life::NAME], "--sabotage goes with the scenario {} alone", rke2::life::NAME);
        rke2::life::check_sabotage(state)?;
    }
    execute(options, Run::all(SCENARIOS), wanted, builder)
}

/// Builds the parts that these runs need, which takes minutes the first time.
pub(super) fn prepare(options: &TestOptions, builder: &dyn Builder) -> anyhow::Result<()> {
    let all = Run::all(SCENARIOS);
    Prepared::make(&needs(&options.chosen(&all)), &options.sources, builder).map(drop)
}

/// Runs the measurements: `runs` enrollments, with everything built by this cargo profile.
pub(super) fn measure(runs: u8, profile: &str, builder: &dyn Builder) -> anyhow::Result<()> {
    let mut options = TestOptions::of(&[]);
    options.sources.profile = Some(profile.to_owned());
    execute(&options, vec![Run::Scenario(&FIGURES)], &[runs.to_string()], builder).map(drop)
}

fn execute(options: &TestOptions, all: Vec<Run>, wanted: &[String], builder: &dyn Builder) -> anyhow::Result<u32> {
    let names = || all.iter().map(Run::name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.runs.iter().find(|name| !all.iter().any(|run| run.name() == *name)) {
        bail!("unknown run `{unknown}`; the runs are {}", names());
    }
    let _lock = LabLock::take()?;
    refuse_remains()?;
    // Installed packages change the machine permanently and must not count as residue of the lab.
    packages::ensure()?;
    let runs = options.chosen(&all);
    // Nodes that receive a release are those whose preflights check the disk.
    let deploying = runs.iter().filter(|run| run.needs().contains(&Part::Release)).map(|run| run.nodes()).max();
    if let Some(nodes) = deploying {
        space::check(nodes, options.sources.artifacts.as_deref())?;
    }
    let prepared = Prepared::make(&needs(&runs), &options.sources, builder)?.with_selection(wanted.to_vec());
    if let Some(nodes) = deploying {
        space::check(nodes, Some(prepared.path(Part::Release)?))?;
    }
    let several = runs.len() > 1;
    let (mut failed, mut passed) = (Vec::new(), 0);
    for run in runs {
        println!("==> {}", run.name());
        match between_inventories(run, &prepared, options.keep) {
            Ok(of_run) => passed += of_run,
            Err(error) if error.downcast_ref::<Interrupted>().is_some() => {
                eprintln!("interrupted; the lab was removed");
                std::process::exit(INTERRUPTED);
            }
            Err(error) => {
                // The error of a single run is returned and printed last.
                if several {
                    eprintln!("error: {}: {error:#}", run.name());
                }
                failed.push((run.name(), error));
                if options.keep {
                    break;
                }
            }
        }
    }
    match failed.pop() {
        None => Ok(passed),
        // A single error is returned itself, so that its exit code is kept.
        Some((_, error)) if failed.is_empty() => Err(error),
        Some(last) => {
            let line = |(name, error): &(&str, Error)| {
                format!("\n  {name}: {}", format!("{error:#}").lines().last().unwrap_or_default().trim())
            };
            bail!("these runs failed:{}", failed.iter().chain([&last]).map(line).collect::<String>())
        }
    }
}

fn needs(runs: &[&Run]) -> BTreeSet<Part> {
    runs.iter().flat_map(|run| run.needs()).copied().collect()
}

#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

fn refuse_remains() -> anyhow::Result<()> {
    if let Some(state) = State::read()? {
        let requested = "a lab for tests".to_owned();
        return Err(Refusal::OtherLab { existing: state.shape.names(), requested }.into());
    }
    let remains = remains::find()?;
    ensure!(
        remains.is_empty(),
        Refusal::Remains(remains.iter().map(Resource::describe).collect::<Vec<_>>().join("; "))
    );
    Ok(())
}

/// Executes a run between two inventories; returns how many of its checks passed.
fn between_inventories(run: &Run, prepared: &Prepared, keep: bool) -> anyhow::Result<u32> {
    let before = Inventory::take()?;
    println!("  before: {}", before.counts());
    let began = Instant::now();
    let outcome = run.execute(prepared);
    if keep && outcome.is_err() {
        eprintln!(
            "  the lab stays up; enter a node with `cargo xtask lab shell NODE`, remove the lab with `cargo xtask lab down`"
        );
        let folder = place::control_plane();
        eprintln!(
            "  to use its control plane, if it has one: export GPUAAS_READY_FILE={folder}/ready.json \
             GPUAAS_TOKEN=$(cat {folder}/{})",
            control_plane::ADMIN_TOKEN
        );
        return outcome.map(|_| 0);
    }
    let ended = down::run();
    let after = Inventory::take()?;
    let difference = before.diff(&after);
    println!(
        "  after: {}; attributed to others: {}; {:.1} s in total",
        after.counts(),
        difference.others,
        began.elapsed().as_secs_f64()
    );
    // Residue is printed in any case; the first error is returned.
    for line in &difference.lines {
        eprintln!("  residue: {line}");
    }
    let outcome = outcome?;
    ended?;
    ensure!(difference.lines.is_empty(), Refusal::Residue(difference.lines));
    match outcome {
        Outcome::Done => run.passed_checks(prepared),
        Outcome::Interrupted => Err(Interrupted.into()),
    }
}

/// Runs the hidden command: a scenario on the running lab.
pub(super) fn run_scenario(options: &ScenarioOptions) -> anyhow::Result<()> {
    die_with_parent(options.within)?;
    let scenario = SCENARIOS
        .iter()
        .chain([&FAULTS, &FIGURES])
        .find(|scenario| scenario.name == options.name)
        .context("unknown scenario")?;
    let (lab, given) = (Lab::open()?, evidence::read_input(&options.given)?);
    let result = (scenario.run)(&lab, &given);
    let saved = evidence::save_passed(given.evidence());
    let Err(error) = result else { return saved };
    evidence::gather(&lab, given.evidence());
    evidence::save_failure(given.evidence(), error)?;
    // `lab test` prints the reason, after everything else.
    std::process::exit(1)
}

/// Makes this process die with the process that holds the lock.
pub(super) fn die_with_parent(holder: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(Pid::as_raw_nonzero).map(i32::from);
    ensure!(parent == Some(holder), "process {holder} is not the parent of this process");
    Ok(())
}
