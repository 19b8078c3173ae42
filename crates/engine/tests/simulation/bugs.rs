//! Plays whole lives with each deliberate bug until an oracle notices it. `cargo xtask test --bugs` runs this; it takes minutes.

use std::{collections::BTreeMap, sync::Mutex, sync::PoisonError, thread};

use gpuaas_bugs::Bug;

use crate::{oracles::Oracle, pin_to_one_cpu, seed, show, shrunk};

/// Each bug must be noticed within this many seeds.
const SEEDS: u64 = 1_000;

/// How a bug was noticed.
struct Caught {
    seed: u64,
    oracle: Oracle,
}

/// Returns the bug with this name.
pub(crate) fn named(name: &str) -> Option<Bug> {
    Bug::ALL.iter().copied().find(|bug| bug.name() == name)
}

#[test]
#[ignore = "takes minutes: cargo xtask test --bugs"]
fn deliberate_bugs_are_all_noticed() {
    let chosen = std::env::var("GPUAAS_BUG").ok().map(|name| named(&name).expect("GPUAAS_BUG names a bug"));
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| chosen.is_none_or(|chosen| chosen == *bug)).collect();
    show(&format!("deliberate bug: {:<28} {:<16} {:>4}  {}", "name", "noticed by", "seed", "mistake"));
    let caught = catch_all(&bugs);
    if let (Some(bug), Some(Some(caught))) = (chosen, caught.first()) {
        show(&shrunk(&seed::play_parts(caught.seed, None, Some(bug)), Some(bug)));
    }
    let missed = bugs.iter().zip(&caught).filter(|(_, caught)| caught.is_none());
    let missed: Vec<&str> = missed.map(|(bug, _)| bug.name()).collect();
    assert!(missed.is_empty(), "no oracle notices {} within {SEEDS} seeds", missed.join(", "));
}

fn show_row(bug: Bug, caught: Option<&Caught>) {
    let (oracle, seed) = match caught {
        Some(caught) => (caught.oracle.to_string(), caught.seed.to_string()),
        None => ("NOTHING".to_owned(), "-".to_owned()),
    };
    show(&format!("deliberate bug: {:<28} {oracle:<16} {seed:>4}  {}", bug.name(), bug.mistake()));
}

/// Plays seeds for each bug, several bugs at a time, and prints each result at once.
fn catch_all(bugs: &[Bug]) -> Vec<Option<Caught>> {
    let waiting = Mutex::new(bugs.iter().copied().enumerate().collect::<Vec<_>>());
    let caught = Mutex::new(BTreeMap::new());
    let players = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for player in 0..players {
            let (waiting, caught) = (&waiting, &caught);
            scope.spawn(move || {
                pin_to_one_cpu(player);
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some((at, bug)) = next else { return };
                    let one = catch(bug);
                    show_row(bug, one.as_ref());
                    caught.lock().unwrap_or_else(PoisonError::into_inner).insert(at, one);
                }
            });
        }
    });
    caught.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Plays seeds with the bug until an oracle notices it. A seed that fails without the bug, too, does not count.
fn catch(bug: Bug) -> Option<Caught> {
    (0..SEEDS).find_map(|seed| {
        let oracle = seed::play_parts(seed, None, Some(bug)).violations.first()?.oracle;
        seed::play_life(seed).violations.is_empty().then_some(Caught { seed, oracle })
    })
}
