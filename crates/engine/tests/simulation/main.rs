//! Deterministic simulation of deployments: one seed decides all random choices and all faults.
//!
//! - Real: engine, planner, the RKE2 app, the store on SQLite, envelopes, the agent's runner with its ledger.
//! - Modelled: the network, the hosts and the changes that task handlers make to them, the cluster.
//! - Deliberately absent: TLS and connections as byte streams, inits, and hosts that lose synced data.
//!
//! A trace contains no certificates, keys or sealed secrets, because the seed does not decide them: the cryptographic library draws
//! the keys and nonces.

mod bugs;
mod cancels;
mod cluster;
mod disk;
mod faults;
mod hints;
mod life;
mod machine;
mod network;
mod node;
mod oracles;
mod people;
mod plane;
mod scheduler;
mod seed;
mod shrink;
mod simulation;
mod tenancy;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use seed::{Played, play};

/// The number of deployment seeds that a run simulates, unless `GPUAAS_SEEDS` sets another.
const SEEDS: u64 = 200;
/// The number of seeds with two tenants and an operator, unless `GPUAAS_TENANT_SEEDS` sets another.
const TENANT_SEEDS: u64 = 200;
/// The number of seeds of whole lives, unless `GPUAAS_LIFE_SEEDS` sets another.
const LIFE_SEEDS: u64 = 1_000;
/// At least this share of the workloads, in percent, must run or be decommissioned when faults have stopped and people have done what the
/// platform advises.
const SETTLED_PERCENT_MIN: u64 = 95;
/// What happens in at least one of these seeds: otherwise an oracle has nothing to judge.
const LIFE_EVENTS: [&str; 4] =
    ["drift hints taken", "platform reconciliations", "notices of a cluster", "members lost while others were calm"];
/// The number of seeds with many nodes and no faults.
const LARGE_SEEDS: u64 = 6;
/// A run stops after this many failed seeds.
const FAILED_MAX: usize = 8;
/// This many failed seeds of whole lives are shrunk.
const SHRUNK_MAX: usize = 2;
/// A seed is shrunk for this long in real time; most need a minute or two. What is left then fails, too.
const SHRINK_TIME_MAX: Duration = Duration::from_secs(180);
/// Every 20th seed is simulated twice more and must produce the same trace both times.
const AGAIN_EVERY: usize = 20;

#[test]
fn simulation_of_a_deployment_succeeds_despite_faults() {
    if let Ok(text) = std::env::var("GPUAAS_SEED") {
        let played = play(text.parse().expect("GPUAAS_SEED is a number"));
        show(&played.trace.join("\n"));
        show(&format!("simulation: seed {text}, hash {}", played.hash));
        assert!(played.violations.is_empty(), "{}", failure(&played));
        return;
    }
    let seeds = std::env::var("GPUAAS_SEEDS").map_or(SEEDS, |text| text.parse().expect("GPUAAS_SEEDS is a number"));
    let played = play_all(&(0..seeds).collect::<Vec<_>>(), |seed| play(seed).without_trace());
    let failed: Vec<String> = played.iter().filter(|played| !played.violations.is_empty()).map(failure).collect();
    show(&format!("simulation: {:?}", injected(&played)));
    let backups = injected(&played).get("backups restored").copied().unwrap_or_default();
    assert!(backups > 0 || seeds < SEEDS, "no backup was taken");
    assert!(failed.is_empty(), "{} of {} seeds failed\n{}", failed.len(), played.len(), failed.join("\n"));
    let hashes: Vec<&str> = played.iter().map(|played| played.hash.as_str()).collect();
    show(&format!("simulation: {seeds} seeds, hash {}", gpuaas_trust::sha256_hex(hashes.concat().as_bytes())));
}

#[test]
fn simulation_of_tenants_keeps_them_isolated() {
    if let Ok(text) = std::env::var("GPUAAS_TENANT_SEED") {
        let played = seed::play_tenants(text.parse().expect("GPUAAS_TENANT_SEED is a number"));
        show(&played.trace.join("\n"));
        assert!(played.violations.is_empty(), "{}", failure(&played));
        return;
    }
    let setting = std::env::var("GPUAAS_TENANT_SEEDS");
    let seeds = setting.map_or(TENANT_SEEDS, |text| text.parse().expect("GPUAAS_TENANT_SEEDS is a number"));
    let played = play_all(&(0..seeds).collect::<Vec<_>>(), |seed| seed::play_tenants(seed).without_trace());
    let failed: Vec<String> = played.iter().filter(|played| !played.violations.is_empty()).map(failure).collect();
    show(&format!("simulation of tenants: {:?}", injected(&played)));
    assert!(failed.is_empty(), "{} of {} seeds failed\n{}", failed.len(), played.len(), failed.join("\n"));
    let hashes: Vec<&str> = played.iter().map(|played| played.hash.as_str()).collect();
    let hash = gpuaas_trust::sha256_hex(hashes.concat().as_bytes());
    show(&format!("simulation of tenants: {seeds} seeds, hash {hash}"));
}

#[test]
fn simulation_of_whole_lives_ends_in_states_that_people_asked_for() {
    if let Ok(text) = std::env::var("GPUAAS_LIFE_SEED") {
        return replay_life(text.parse().expect("GPUAAS_LIFE_SEED is a number"));
    }
    let setting = std::env::var("GPUAAS_LIFE_SEEDS");
    let seeds = setting.map_or(LIFE_SEEDS, |text| text.parse().expect("GPUAAS_LIFE_SEEDS is a number"));
    let played = play_all(&(0..seeds).collect::<Vec<_>>(), |seed| seed::play_life(seed).without_trace());
    let failed = played.iter().filter(|played| !played.violations.is_empty()).enumerate();
    let failed: Vec<String> = failed
        .map(|(at, played)| {
            let failure = failure_of(played, "GPUAAS_LIFE_SEED");
            if at < SHRUNK_MAX { format!("{failure}\n{}", shrunk(played, None)) } else { failure }
        })
        .collect();
    show(&format!("simulation of whole lives: {:?}", injected(&played)));
    for (seed, why) in played.iter().filter_map(|played| Some((played.seed, played.unsettled.as_ref()?))) {
        show(&format!("simulation of whole lives: seed {seed} did not settle: {why}"));
    }
    assert!(failed.is_empty(), "{} of {} seeds failed\n{}", failed.len(), played.len(), failed.join("\n"));
    let settled = played.iter().filter(|played| played.unsettled.is_none()).count() as u64;
    assert!(settled * 100 >= seeds * SETTLED_PERCENT_MIN, "{settled} of {seeds} workloads settled");
    for what in LIFE_EVENTS {
        assert!(injected(&played).contains_key(what) || seeds < LIFE_SEEDS, "in no seed: {what}");
    }
    let hashes: Vec<&str> = played.iter().map(|played| played.hash.as_str()).collect();
    let hash = gpuaas_trust::sha256_hex(hashes.concat().as_bytes());
    show(&format!("simulation of whole lives: {seeds} seeds, {settled} settled, hash {hash}"));
}

#[test]
fn simulation_trace_depends_only_on_the_seed() {
    let seeds: Vec<u64> = (0..SEEDS).step_by(AGAIN_EVERY).collect();
    let (first, second) = (play_all(&seeds, play), play_all(&seeds, play));
    for (first, second) in first.iter().zip(&second) {
        let differ = first.trace.iter().zip(&second.trace).find(|(one, other)| one != other);
        assert_eq!(first.hash, second.hash, "seed {}: {differ:#?}", first.seed);
    }
    let different: std::collections::BTreeSet<&str> = first.iter().map(|played| played.hash.as_str()).collect();
    assert_eq!(different.len(), first.len(), "every seed has a different trace");
}

/// Guards against a deadlock: when attempts ran inside their driver, four of them could hold all of the store's readers while the driver
/// waited for a fifth without polling them.
#[test]
fn simulation_of_many_concurrent_reads_blocks_no_driver() {
    let played = play_all(&(0..LARGE_SEEDS).collect::<Vec<_>>(), seed::play_large);
    let failed: Vec<String> = played.iter().filter(|played| !played.violations.is_empty()).map(failure).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Sums the event counts of all seeds.
fn injected(played: &[Played]) -> BTreeMap<&'static str, u32> {
    let mut injected = BTreeMap::new();
    for (what, times) in played.iter().flat_map(|played| &played.injected) {
        *injected.entry(*what).or_default() += times;
    }
    injected
}

/// Simulates seeds in parallel, each on one thread, and returns them sorted by seed. Starts no further seeds after [`FAILED_MAX`] failures.
fn play_all(seeds: &[u64], play: fn(u64) -> Played) -> Vec<Played> {
    let next = AtomicU64::new(0);
    let played = Mutex::new(Vec::new());
    let players = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for player in 0..players {
            let (next, played) = (&next, &played);
            scope.spawn(move || {
                pin_to_one_cpu(player);
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

/// Pins the thread to one CPU. A seed's thread and the store's thread wait for each other at every statement; on one CPU that takes
/// half the time.
fn pin_to_one_cpu(player: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if let Some(cpu) = allowed.get(player % allowed.len().max(1)) {
        let mut one = CpuSet::new();
        one.set(*cpu);
        // A failure costs only speed.
        let _ = sched_setaffinity(None, &one);
    }
}

/// Plays one whole life and prints its script and its trace: with the parts of `GPUAAS_LIFE_ONLY` and the deliberate bug of `GPUAAS_BUG`, if
/// these are set.
fn replay_life(seed: u64) {
    let parts = std::env::var("GPUAAS_LIFE_ONLY").ok().map(|text| {
        let numbers = text.split(',').filter(|number| !number.is_empty());
        numbers.map(|number| number.parse().expect("GPUAAS_LIFE_ONLY lists numbers")).collect::<BTreeSet<usize>>()
    });
    let bug = std::env::var("GPUAAS_BUG").ok().map(|name| bugs::named(&name).expect("GPUAAS_BUG names a bug"));
    for (number, part) in seed::parts_of_life(seed).iter().enumerate() {
        if parts.as_ref().is_none_or(|parts| parts.contains(&number)) {
            show(&format!("part {number}: {part}"));
        }
    }
    let played = seed::play_parts(seed, parts.as_ref(), bug);
    show(&played.trace.join("\n"));
    if let Some(why) = &played.unsettled {
        show(&format!("did not settle: {why}"));
    }
    assert!(played.violations.is_empty(), "{}", failure_of(&played, "GPUAAS_LIFE_SEED"));
}

/// Shrinks the script of a failed whole life, and returns the fewest parts with which the same oracle fails, with the line that replays them.
fn shrunk(played: &Played, bug: Option<gpuaas_bugs::Bug>) -> String {
    let Some(oracle) = played.violations.first().map(|violation| violation.oracle) else { return String::new() };
    let parts = seed::parts_of_life(played.seed);
    let began = Instant::now();
    let kept = shrink::shrink(parts.len(), |parts| {
        if began.elapsed() > SHRINK_TIME_MAX {
            return false;
        }
        let again = seed::play_parts(played.seed, Some(parts), bug);
        again.violations.iter().any(|violation| violation.oracle == oracle)
    });
    let described: Vec<String> = kept.iter().map(|number| format!("    part {number}: {}", parts[*number])).collect();
    let numbers: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let bug = bug.map_or_else(String::new, |bug| format!("GPUAAS_BUG={} ", bug.name()));
    format!(
        "  {oracle} fails with {} of {} parts:\n{}\n  GPUAAS_LIFE_SEED={} GPUAAS_LIFE_ONLY={} {bug}cargo test -p gpuaas-engine \
         --all-features --test simulation whole_lives -- --nocapture",
        kept.len(),
        parts.len(),
        described.join("\n"),
        played.seed,
        numbers.join(","),
    )
}

fn failure(played: &Played) -> String {
    failure_of(played, "GPUAAS_SEED")
}

/// Returns the violations of a seed with the variable that repeats it.
fn failure_of(played: &Played, variable: &str) -> String {
    let violations: Vec<String> = played.violations.iter().map(ToString::to_string).collect();
    let violations = violations.join("\n  ");
    format!("seed {} ({variable}={} repeats it and prints its trace):\n  {violations}", played.seed, played.seed)
}

/// Prints to standard output directly, because the test harness hides the output of passing tests.
fn show(text: &str) {
    // A closed standard output must not fail the test.
    let _ = writeln!(std::io::stdout(), "{text}");
}
