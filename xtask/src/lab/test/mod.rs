//! `lab test`: runs on booted nodes, each between two inventories of this machine that must not differ.
//!
//! Guarantees: whatever happens in a run (a failure, Ctrl-C, a crash of its processes), the lab is removed afterwards and the machine is
//! inspected again. A run executes in a separate process, which is killed, not asked to end; `down` cleans up as after a crash.
//!
//! Deliberately absent: what is deployed onto the nodes; scenarios bring that along, each with a line in [`STORIES`].

mod act;
mod check;
mod cluster;
mod contract;
mod control_plane;
mod evidence;
mod faults;
mod figures;
mod following;
mod ground;
mod left;
mod lifecycle;
mod machines;
mod operations;
mod prepare;
mod rke2;
mod said;
mod site;

use std::{collections::BTreeSet, time::Instant};

use anyhow::{Context, bail, ensure};
use camino::Utf8PathBuf;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{
    down,
    inventory::Inventory,
    node::Lab,
    packages, place,
    refusal::{INTERRUPTED, Refusal},
    state::State,
    thing::{self, Thing},
    turn::Turn,
};
use act::{Act, Outcome, Story};
use prepare::{Part, Prepared, Sources};

/// Scenarios that run on a running lab by default.
const STORIES: &[Story] = &[
    Story { name: "ground", nodes: 3, needs: &[], tell: ground::tell },
    Story { name: "contract", nodes: 1, needs: &[Part::Contract], tell: contract::tell },
    Story { name: "lifecycle", nodes: 2, needs: &[Part::Packages, Part::PackagesNewer], tell: lifecycle::tell },
    Story {
        name: "rke2",
        nodes: 3,
        needs: &[Part::Programs, Part::Packages, Part::Release, Part::Kubectl],
        tell: rke2::tell,
    },
];

/// Scenarios that run only on request: they take longer or are no tests.
const FAULTS: Story = Story { name: "faults", nodes: faults::NODES, needs: faults::NEEDS, tell: faults::tell };
const FIGURES: Story = Story { name: "figures", nodes: figures::NODES, needs: figures::NEEDS, tell: figures::tell };

/// Options of `lab test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Names of the scenarios and other runs; without any, all of them.
    #[arg(value_name = "ACT")]
    acts: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Leave the lab and its control plane running after a failed scenario.
    #[arg(long)]
    keep: bool,
    /// Run the fault tests instead, and print a table with a row for each.
    #[arg(long, conflicts_with = "acts")]
    faults: bool,
    /// Run only this fault test; repeatable.
    #[arg(long, value_name = "CELL", requires = "faults")]
    only: Vec<String>,
}

impl Options {
    /// Options for these runs, with programs built here.
    pub(crate) fn of(acts: &[&str]) -> Self {
        let acts = acts.iter().map(|act| (*act).to_owned()).collect();
        Self { acts, sources: Sources::default(), keep: false, faults: false, only: Vec::new() }
    }

    /// Selects the requested ones of all runs, in the order of `all`.
    fn chosen<'a>(&self, all: &'a [Act]) -> Vec<&'a Act> {
        all.iter().filter(|act| self.acts.is_empty() || self.acts.iter().any(|name| name == act.name())).collect()
    }
}

/// Options of the hidden command `lab story`.
#[derive(clap::Args)]
pub(crate) struct StoryOptions {
    name: String,
    #[arg(long, value_name = "PID")]
    within: i32,
    #[arg(long, value_name = "FILE")]
    given: Utf8PathBuf,
}

/// Executes the runs; returns how many of their checks passed.
pub(crate) fn run(options: &Options) -> anyhow::Result<u32> {
    if options.faults {
        faults::must_exist(&options.only)?;
        return play(options, vec![Act::Story(&FAULTS)], &options.only);
    }
    play(options, Act::all(STORIES), &[])
}

/// Builds the parts that these runs need, which takes minutes the first time.
pub(super) fn prepare(options: &Options) -> anyhow::Result<()> {
    let all = Act::all(STORIES);
    Prepared::make(&needs(&options.chosen(&all)), &options.sources).map(drop)
}

/// Runs the measurements: `runs` enrollments, with everything built by this cargo profile.
pub(super) fn measure(runs: u8, profile: &str) -> anyhow::Result<()> {
    let mut options = Options::of(&[]);
    options.sources.profile = Some(profile.to_owned());
    play(&options, vec![Act::Story(&FIGURES)], &[runs.to_string()]).map(drop)
}

fn play(options: &Options, all: Vec<Act>, wanted: &[String]) -> anyhow::Result<u32> {
    let names = || all.iter().map(Act::name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.acts.iter().find(|name| !all.iter().any(|act| act.name() == *name)) {
        bail!("there is no act `{unknown}`; there are {}", names());
    }
    let _turn = Turn::take()?;
    refuse_ruins()?;
    // Installed packages change the machine permanently and must not count as residue of the lab.
    packages::ensure()?;
    if options.faults {
        packages::faketime()?;
    }
    let acts = options.chosen(&all);
    let prepared = Prepared::make(&needs(&acts), &options.sources)?.wanting(wanted.to_vec());
    let (mut failed, mut held) = (Vec::new(), 0);
    for act in acts {
        println!("==> {}", act.name());
        match between_inventories(act, &prepared, options.keep) {
            Ok(of_act) => held += of_act,
            Err(error) if error.downcast_ref::<Interrupted>().is_some() => {
                eprintln!("interrupted; the lab is gone");
                std::process::exit(INTERRUPTED);
            }
            Err(error) => {
                eprintln!("error: {}: {error:#}", act.name());
                failed.push((act.name(), error));
                if options.keep {
                    break;
                }
            }
        }
    }
    match failed.pop() {
        None => Ok(held),
        // A single error is returned itself, so that its exit code is kept.
        Some((_, error)) if failed.is_empty() => Err(error),
        Some((last, _)) => {
            let names: Vec<&str> = failed.iter().map(|(name, _)| *name).chain([last]).collect();
            bail!("these acts failed: {}", names.join(", "))
        }
    }
}

fn needs(acts: &[&Act]) -> BTreeSet<Part> {
    acts.iter().flat_map(|act| act.needs()).copied().collect()
}

#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

fn refuse_ruins() -> anyhow::Result<()> {
    if let Some(state) = State::read()? {
        let asked = "one for tests".to_owned();
        return Err(Refusal::OtherLab { there: state.shape.names(), asked }.into());
    }
    let ruins = thing::found()?;
    ensure!(ruins.is_empty(), Refusal::Ruins(ruins.iter().map(Thing::describe).collect::<Vec<_>>().join("; ")));
    Ok(())
}

/// Executes a run between two inventories; returns how many of its checks passed.
fn between_inventories(act: &Act, prepared: &Prepared, keep: bool) -> anyhow::Result<u32> {
    let before = Inventory::take()?;
    println!("  before: {}", before.counts());
    let began = Instant::now();
    let outcome = act.play(prepared);
    if keep && outcome.is_err() {
        eprintln!("  the lab is left up: `cargo xtask lab shell NODE`, `cargo xtask lab down`");
        let folder = place::control_plane();
        eprintln!(
            "  its control plane, if it has one: export GPUAAS_READY_FILE={folder}/ready.json \
             GPUAAS_TOKEN=$(cat {folder}/{})",
            control_plane::ADMIN_TOKEN
        );
        return outcome.map(|_| 0);
    }
    let ended = down::run();
    let after = Inventory::take()?;
    let difference = before.until(&after);
    println!(
        "  after: {}; left to others: {}; {:.1} s in all",
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
    ensure!(difference.lines.is_empty(), Refusal::Left(difference.lines));
    match outcome {
        Outcome::Done => act.held(),
        Outcome::Interrupted => Err(Interrupted.into()),
    }
}

/// Runs the hidden command: a scenario on the running lab.
pub(super) fn tell(options: &StoryOptions) -> anyhow::Result<()> {
    bound_to(options.within)?;
    let story =
        STORIES.iter().chain([&FAULTS, &FIGURES]).find(|story| story.name == options.name).context("no such story")?;
    let (lab, given) = (Lab::there()?, evidence::given(&options.given)?);
    let told = (story.tell)(&lab, &given);
    if told.is_err() {
        evidence::gather(&lab, given.evidence());
    }
    evidence::keep_held(given.evidence())?;
    told
}

/// Makes this process die with the process that holds the lock.
pub(super) fn bound_to(holder: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(Pid::as_raw_nonzero).map(i32::from);
    ensure!(parent == Some(holder), "process {holder} has not started this one, or has ended");
    Ok(())
}
