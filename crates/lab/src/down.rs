//! `lab down`: removes everything of a lab, however the lab ended.
//!
//! Guarantees: removes both what the state file records and what carries one of the lab's names, users before the things they use.
//! Continues after a failure, and lists what could not be removed. Can be repeated. The state file and its folder are removed last.

use std::{collections::BTreeSet, time::Instant};

use super::{place, refusal::Refusal, remains, resource::Resource, state::State};

/// Runs the command; the caller holds the lab's lock.
pub(super) fn run() -> anyhow::Result<()> {
    let began = Instant::now();
    let mut resources = remains::find()?;
    match State::read() {
        Ok(Some(state)) => resources.extend(state.resources),
        Ok(None) => {}
        // Then only the names tell what is the lab's.
        Err(error) => eprintln!("cannot read the state file: {error:#}"),
    }
    if resources.is_empty() {
        println!("  there is no lab");
        return Ok(());
    }
    let mut left = Vec::new();
    for resource in removal_order(resources) {
        if let Err(error) = resource.remove() {
            left.push(format!("{}: {error:#}", resource.describe()));
        }
    }
    left.extend(remains::find()?.iter().map(|resource| format!("{} still exists", resource.describe())));
    if left.is_empty() {
        println!("  removed the lab in {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    } else {
        Err(Refusal::Residue(left).into())
    }
}

/// Sorts by kind; inner folders precede outer ones, and the folder of the state file is last.
fn removal_order(resources: BTreeSet<Resource>) -> Vec<Resource> {
    let state = Resource::Tree(place::RUN.into());
    let is_folder = |resource: &Resource| matches!(resource, Resource::Folder(_));
    let mut order: Vec<Resource> =
        resources.iter().filter(|resource| !is_folder(resource) && **resource != state).cloned().collect();
    order.extend(resources.iter().rev().filter(|resource| is_folder(resource)).cloned());
    order.extend(resources.contains(&state).then_some(state));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_folders_are_removed_first_and_the_state_file_last() {
        let folder = |path: &str| Resource::Folder(path.into());
        let resources = BTreeSet::from([
            folder("/run/systemd"),
            folder("/run/systemd/nspawn/propagate"),
            folder("/run/systemd/nspawn"),
            Resource::Tree(place::RUN.into()),
            Resource::Tree(place::DATA.into()),
            Resource::Link("gpulab0".to_owned()),
        ]);
        let order = [
            Resource::Link("gpulab0".to_owned()),
            Resource::Tree(place::DATA.into()),
            folder("/run/systemd/nspawn/propagate"),
            folder("/run/systemd/nspawn"),
            folder("/run/systemd"),
            Resource::Tree(place::RUN.into()),
        ];
        assert_eq!(removal_order(resources), order);
    }
}
