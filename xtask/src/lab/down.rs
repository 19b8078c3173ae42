//! `lab down`: removes everything of a lab, however the lab ended.
//!
//! Guarantees: removes both what the state file records and what carries one of the lab's names, users before the things they use.
//! Continues after a failure, and lists what could not be removed. Can be repeated. The state file and its folder are removed last.

use std::{collections::BTreeSet, time::Instant};

use super::{
    place,
    refusal::Refusal,
    state::State,
    thing::{self, Thing},
};

/// Runs the command; the caller holds the lab's lock.
pub(super) fn run() -> anyhow::Result<()> {
    let began = Instant::now();
    let mut things = thing::found()?;
    match State::read() {
        Ok(Some(state)) => things.extend(state.things),
        Ok(None) => {}
        // Then only the names tell what is the lab's.
        Err(error) => eprintln!("the state file cannot be read: {error:#}"),
    }
    if things.is_empty() {
        println!("  there is no lab");
        return Ok(());
    }
    let mut left = Vec::new();
    for thing in in_order(things) {
        if let Err(error) = thing.remove() {
            left.push(format!("{}: {error:#}", thing.describe()));
        }
    }
    left.extend(thing::found()?.iter().map(|thing| format!("{} is still there", thing.describe())));
    if left.is_empty() {
        println!("  the lab is gone, in {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    } else {
        Err(Refusal::Left(left).into())
    }
}

/// Sorts by kind; inner folders precede outer ones, and the folder of the state file is last.
fn in_order(things: BTreeSet<Thing>) -> Vec<Thing> {
    let state = Thing::Tree(place::RUN.into());
    let is_folder = |thing: &Thing| matches!(thing, Thing::Folder(_));
    let mut order: Vec<Thing> = things.iter().filter(|thing| !is_folder(thing) && **thing != state).cloned().collect();
    order.extend(things.iter().rev().filter(|thing| is_folder(thing)).cloned());
    order.extend(things.contains(&state).then_some(state));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_from_the_innermost_and_the_state_file_last() {
        let folder = |path: &str| Thing::Folder(path.into());
        let things = BTreeSet::from([
            folder("/run/systemd"),
            folder("/run/systemd/nspawn/propagate"),
            folder("/run/systemd/nspawn"),
            Thing::Tree(place::RUN.into()),
            Thing::Tree(place::DATA.into()),
            Thing::Link("gpulab0".to_owned()),
        ]);
        let order = [
            Thing::Link("gpulab0".to_owned()),
            Thing::Tree(place::DATA.into()),
            folder("/run/systemd/nspawn/propagate"),
            folder("/run/systemd/nspawn"),
            folder("/run/systemd"),
            Thing::Tree(place::RUN.into()),
        ];
        assert_eq!(in_order(things), order);
    }
}
