//! Deterministic simulation of a deployment: one seed decides everything that is by chance, and everything that goes wrong.
//!
//! Genuine: engine, planner, the RKE2 app, the store on SQLite, envelopes, the agent's runner with its ledger. Modelled: the network, the
//! hosts and what handlers change on them, the cluster. Deliberately absent: certificates and connections as bytes, inits, and hosts that
//! lose more than what was not synced.
//!
//! What is kept out of a trace by name, because no seed decides it: certificates with their keys, and sealed secrets, whose nonces are the
//! cryptographic library's own.

mod chance;
mod cluster;
mod disk;
mod faults;
mod machine;
mod network;
mod node;
mod oracles;
mod people;
mod plane;
mod scheduler;
mod seed;
mod tenancy;
mod world;

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use seed::{Played, play};

/// Seeds of every run, unless `GPUAAS_SEEDS` asks for another number.
const SEEDS: u64 = 200;
/// Seeds of two tenants and an operator, unless `GPUAAS_TENANT_SEEDS` asks for another number.
const TENANT_SEEDS: u64 = 200;
/// Seeds of many nodes at which nothing goes wrong.
const CROWDS: u64 = 6;
/// After so many that failed no more are played: they tell enough.
const FAILED_MAX: usize = 8;
/// Every so-manieth is played twice more, and must leave the same trace.
const AGAIN_EVERY: usize = 20;

#[test]
fn simulation_of_a_deployment_ends_well_whatever_goes_wrong() {
    if let Ok(text) = std::env::var("GPUAAS_SEED") {
        let played = play(text.parse().expect("GPUAAS_SEED is a number"));
        show(&played.trace.join("\n"));
        show(&format!("simulation: seed {text}, hash {}", played.hash));
        assert!(played.violations.is_empty(), "{}", failure(&played));
        return;
    }
    let seeds = std::env::var("GPUAAS_SEEDS").map_or(SEEDS, |text| text.parse().expect("GPUAAS_SEEDS is a number"));
    let played = play_all(&(0..seeds).collect::<Vec<_>>(), play);
    let failed: Vec<String> = played.iter().filter(|played| !played.violations.is_empty()).map(failure).collect();
    show(&format!("simulation: {:?}", injected(&played)));
    let backups = injected(&played).get("backups restored").copied().unwrap_or_default();
    assert!(backups > 0 || seeds < SEEDS, "no backup was taken");
    assert!(failed.is_empty(), "{} of {} seeds failed\n{}", failed.len(), played.len(), failed.join("\n"));
    let hashes: Vec<&str> = played.iter().map(|played| played.hash.as_str()).collect();
    show(&format!("simulation: {seeds} seeds, hash {}", gpuaas_trust::sha256_hex(hashes.concat().as_bytes())));
}

#[test]
fn simulation_of_two_tenants_and_an_operator_keeps_them_apart() {
    if let Ok(text) = std::env::var("GPUAAS_TENANT_SEED") {
        let played = seed::play_tenants(text.parse().expect("GPUAAS_TENANT_SEED is a number"));
        show(&played.trace.join("\n"));
        assert!(played.violations.is_empty(), "{}", failure(&played));
        return;
    }
    let asked = std::env::var("GPUAAS_TENANT_SEEDS");
    let seeds = asked.map_or(TENANT_SEEDS, |text| text.parse().expect("GPUAAS_TENANT_SEEDS is a number"));
    let played = play_all(&(0..seeds).collect::<Vec<_>>(), seed::play_tenants);
    let failed: Vec<String> = played.iter().filter(|played| !played.violations.is_empty()).map(failure).collect();
    show(&format!("simulation of tenants: {:?}", injected(&played)));
    assert!(failed.is_empty(), "{} of {} seeds failed\n{}", failed.len(), played.len(), failed.join("\n"));
    let hashes: Vec<&str> = played.iter().map(|played| played.hash.as_str()).collect();
    let hash = gpuaas_trust::sha256_hex(hashes.concat().as_bytes());
    show(&format!("simulation of tenants: {seeds} seeds, hash {hash}"));
}

#[test]
fn simulation_of_the_same_seed_leaves_the_same_trace_and_another_seed_another() {
    let seeds: Vec<u64> = (0..SEEDS).step_by(AGAIN_EVERY).collect();
    let (first, second) = (play_all(&seeds, play), play_all(&seeds, play));
    for (first, second) in first.iter().zip(&second) {
        let differ = first.trace.iter().zip(&second.trace).find(|(one, other)| one != other);
        assert_eq!(first.hash, second.hash, "seed {}: {differ:#?}", first.seed);
    }
    let different: std::collections::BTreeSet<&str> = first.iter().map(|played| played.hash.as_str()).collect();
    assert_eq!(different.len(), first.len(), "each seed has a trace of its own");
}

/// Attempts once ran inside their driver: four that read the store held all its readers, and the driver waited for a fifth without letting
/// them go on.
#[test]
fn simulation_of_many_calls_that_read_at_once_holds_up_no_driver() {
    let played = play_all(&(0..CROWDS).collect::<Vec<_>>(), seed::play_crowd);
    let failed: Vec<String> = played.iter().filter(|played| !played.violations.is_empty()).map(failure).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// How often what happened in all of them together.
fn injected(played: &[Played]) -> BTreeMap<&'static str, u32> {
    let mut injected = BTreeMap::new();
    for (what, times) in played.iter().flat_map(|played| &played.injected) {
        *injected.entry(*what).or_default() += times;
    }
    injected
}

/// Plays seeds side by side, each on one thread, and returns them in order: all, or up to [`FAILED_MAX`] that failed.
fn play_all(seeds: &[u64], play: fn(u64) -> Played) -> Vec<Played> {
    let next = AtomicU64::new(0);
    let played = Mutex::new(Vec::new());
    let players = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for player in 0..players {
            let (next, played) = (&next, &played);
            scope.spawn(move || {
                stay_on_one_processor(player);
                while let Some(seed) =
                    usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|at| seeds.get(at))
                {
                    let one = play(*seed);
                    let mut played = played.lock().unwrap_or_else(PoisonError::into_inner);
                    played.push(one);
                    if played.iter().filter(|played| !played.violations.is_empty()).count() >= FAILED_MAX {
                        return;
                    }
                }
            });
        }
    });
    let mut played = played.into_inner().unwrap_or_else(PoisonError::into_inner);
    played.sort_by_key(|played| played.seed);
    played
}

/// A seed's thread and the store's wait for each other at every statement: on one processor they do that in half the time.
fn stay_on_one_processor(player: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if let Some(cpu) = allowed.get(player % allowed.len().max(1)) {
        let mut one = CpuSet::new();
        one.set(*cpu);
        // It is only slower without.
        let _ = sched_setaffinity(None, &one);
    }
}

fn failure(played: &Played) -> String {
    let violations = played.violations.join("\n  ");
    format!("seed {} (GPUAAS_SEED={} plays it again with its trace):\n  {violations}", played.seed, played.seed)
}

/// Prints past the test harness, which swallows what passing tests print.
fn show(text: &str) {
    // A closed standard output is no reason to fail.
    let _ = writeln!(std::io::stdout(), "{text}");
}
