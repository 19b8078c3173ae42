//! `lab test`: acts on booted nodes, each between two inventories of this machine that must not differ.
//!
//! Guarantees: whatever happens in an act (a failure, Ctrl-C, a death of its processes), the lab is removed behind it and the machine is looked at
//! again. What an act runs is a process of its own: it is ended, not asked to end, and `down` cleans up behind it as behind one that died.
//!
//! Deliberately absent: what is deployed onto the nodes; a story of its own brings that along, with a line in [`STORIES`].

mod act;
mod ground;

use std::time::Instant;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{
    down,
    inventory::Inventory,
    node::Lab,
    packages,
    refusal::{INTERRUPTED, Refusal},
    state::State,
    thing::{self, Thing},
    turn::Turn,
};
use act::{Act, Outcome, Story};

/// What is told on a lab that is up.
const STORIES: &[Story] = &[Story { name: "ground", nodes: 3, tell: ground::tell }];

/// Which acts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Acts by name; all of them where none is named.
    #[arg(value_name = "ACT")]
    acts: Vec<String>,
}

/// Which story.
#[derive(clap::Args)]
pub(crate) struct StoryOptions {
    name: String,
    #[arg(long, value_name = "PID")]
    within: i32,
}

/// Plays them.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let all = Act::all(STORIES);
    let names = || all.iter().map(Act::name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.acts.iter().find(|name| !all.iter().any(|act| act.name() == *name)) {
        bail!("there is no act `{unknown}`; there are {}", names());
    }
    let _turn = Turn::take()?;
    refuse_ruins()?;
    // What they change of the machine stays, and is no part of the lab.
    packages::ensure()?;
    let mut failed = Vec::new();
    for act in all.iter().filter(|act| options.acts.is_empty() || options.acts.iter().any(|name| name == act.name())) {
        println!("==> {}", act.name());
        match between_inventories(act) {
            Ok(()) => {}
            Err(error) if error.downcast_ref::<Interrupted>().is_some() => {
                eprintln!("interrupted; the lab is gone");
                std::process::exit(INTERRUPTED);
            }
            Err(error) => {
                eprintln!("error: {}: {error:#}", act.name());
                failed.push((act.name(), error));
            }
        }
    }
    match failed.pop() {
        None => Ok(()),
        // Its exit code says what kind of failure it was.
        Some((_, error)) if failed.is_empty() => Err(error),
        Some((last, _)) => {
            let names: Vec<&str> = failed.iter().map(|(name, _)| *name).chain([last]).collect();
            bail!("these acts failed: {}", names.join(", "))
        }
    }
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

fn between_inventories(act: &Act) -> anyhow::Result<()> {
    let before = Inventory::take()?;
    println!("  before: {}", before.counts());
    let began = Instant::now();
    let outcome = act.play();
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
        Outcome::Done => Ok(()),
        Outcome::Interrupted => Err(Interrupted.into()),
    }
}

/// The hidden command: tells a story on the lab that is up.
pub(super) fn tell(options: &StoryOptions) -> anyhow::Result<()> {
    bound_to(options.within)?;
    let story = STORIES.iter().find(|story| story.name == options.name).context("no such story")?;
    (story.tell)(&Lab::there()?)
}

/// Ends with the process that has the turn, however that one ends.
pub(super) fn bound_to(holder: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(Pid::as_raw_nonzero).map(i32::from);
    ensure!(parent == Some(holder), "process {holder} has not started this one, or has ended");
    Ok(())
}
