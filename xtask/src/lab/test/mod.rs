//! `lab test`: acts on booted nodes, each between two inventories of this machine that must not differ.
//!
//! Guarantees: whatever happens in an act (a failure, Ctrl-C, a death of its processes), the lab is removed behind it and the machine is looked at
//! again. What an act runs is a process of its own: it is ended, not asked to end, and `down` cleans up behind it as behind one that died.
//!
//! Deliberately absent: what is deployed onto the nodes; a story of its own brings that along, with a line in [`STORIES`].

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

/// What is told on a lab that is up.
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

/// What is told when it is asked for by name alone: it takes longer, or is no test.
const FAULTS: Story = Story { name: "faults", nodes: faults::NODES, needs: faults::NEEDS, tell: faults::tell };
const FIGURES: Story = Story { name: "figures", nodes: figures::NODES, needs: figures::NEEDS, tell: figures::tell };

/// Which acts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Acts by name; all of them where none is named.
    #[arg(value_name = "ACT")]
    acts: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Leave the lab up behind a story that failed, with its control plane.
    #[arg(long)]
    keep: bool,
    /// Play the faults instead: a table with a row for each.
    #[arg(long, conflicts_with = "acts")]
    faults: bool,
    /// This one of the faults alone; repeatable.
    #[arg(long, value_name = "CELL", requires = "faults")]
    only: Vec<String>,
}

impl Options {
    /// These acts, on what is built here.
    pub(crate) fn of(acts: &[&str]) -> Self {
        let acts = acts.iter().map(|act| (*act).to_owned()).collect();
        Self { acts, sources: Sources::default(), keep: false, faults: false, only: Vec::new() }
    }

    /// Those of all that are meant, in their order.
    fn chosen<'a>(&self, all: &'a [Act]) -> Vec<&'a Act> {
        all.iter().filter(|act| self.acts.is_empty() || self.acts.iter().any(|name| name == act.name())).collect()
    }
}

/// Which story.
#[derive(clap::Args)]
pub(crate) struct StoryOptions {
    name: String,
    #[arg(long, value_name = "PID")]
    within: i32,
    #[arg(long, value_name = "FILE")]
    given: Utf8PathBuf,
}

/// Plays them; returns how many checks of theirs held.
pub(crate) fn run(options: &Options) -> anyhow::Result<u32> {
    if options.faults {
        faults::must_exist(&options.only)?;
        return play(options, vec![Act::Story(&FAULTS)], &options.only);
    }
    play(options, Act::all(STORIES), &[])
}

/// Makes what these acts need, which takes minutes the first time: who plays them then finds it.
pub(super) fn prepare(options: &Options) -> anyhow::Result<()> {
    let all = Act::all(STORIES);
    Prepared::make(&needs(&options.chosen(&all)), &options.sources).map(drop)
}

/// Measures: brings a node in that often, with everything built by this cargo profile.
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
    // What they change of the machine stays, and is no part of the lab.
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
        // Its exit code says what kind of failure it was.
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

/// Plays an act; returns how many of its checks held.
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
    // What went wrong first is told first; a residue is told in any case.
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

/// The hidden command: tells a story on the lab that is up.
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

/// Ends with the process that has the turn, however that one ends.
pub(super) fn bound_to(holder: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(Pid::as_raw_nonzero).map(i32::from);
    ensure!(parent == Some(holder), "process {holder} has not started this one, or has ended");
    Ok(())
}
