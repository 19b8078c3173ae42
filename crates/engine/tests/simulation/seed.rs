//! Simulates one seed from start to end.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_bugs::Bug;
use gpuaas_crash_points::StepKind;
use gpuaas_model::Clock;
use gpuaas_store::{CommitTiming, Store, StoreOptions};
use gpuaas_trust::sha256_hex;
use tokio::sync::OnceCell;

use crate::{
    faults::Faults,
    life::{self, script::Script},
    oracles::{self, Oracle, Violation},
    people,
    scheduler::{Scheduler, SimulatedClock},
    simulation::{Scenario, Simulation},
    tenancy,
};
use gpuaas_test_support::Chance;

/// A seed fails if it takes longer than this in simulated time.
const DURATION_MAX: Duration = Duration::from_secs(4 * 3_600);

/// Mixed into tenant seeds, so that they differ from deployment seeds.
const TENANTS: u64 = 0x7e4a_4e75;
/// The number of nodes that two tenants share.
const TENANTS_NODES: usize = 3;

/// Mixed into seeds of whole lives.
const LIFE: u64 = 0x11fe_11fe;
/// In every whole life whose seed is a multiple of this, the control planes follow the cluster, which takes longer.
const FOLLOWED_EVERY: u64 = 32;
/// The number of nodes in [`play_life`].
const LIFE_NODES: usize = 4;

/// The number of nodes in [`play_large`].
const LARGE_NODES: usize = 8;

/// The result of a simulated seed.
pub(crate) struct Played {
    pub(crate) seed: u64,
    pub(crate) trace: Vec<String>,
    /// SHA-256 of the trace.
    pub(crate) hash: String,
    pub(crate) violations: Vec<Violation>,
    /// Why the workload neither runs nor is decommissioned at the end of its life; `None` if it does.
    pub(crate) unsettled: Option<String>,
    /// Counts of injected faults and other notable events, by description.
    pub(crate) injected: BTreeMap<&'static str, u32>,
}

impl Played {
    /// Returns the result without its trace: those of a thousand seeds take a gigabyte.
    pub(crate) fn without_trace(self) -> Self {
        Self { trace: Vec::new(), ..self }
    }
}

/// Simulates one deployment with the faults of the seed.
pub(crate) fn play(seed: u64) -> Played {
    let mut chance = Chance::of_seed(seed);
    let script = Script::of_faults(Faults::of(&mut chance.fork()));
    play_with((Scenario::OneDeployment, seed), chance, script, CommitTiming::Immediate)
}

/// Simulates two tenants and an operator with the faults of the seed.
pub(crate) fn play_tenants(seed: u64) -> Played {
    let mut chance = Chance::of_seed(seed ^ TENANTS);
    let script = Script::of_faults(Faults::of(&mut chance.fork()).of_tenants(TENANTS_NODES));
    play_with((Scenario::TwoTenants, seed), chance, script, CommitTiming::Immediate)
}

/// Simulates the whole life of a workload with the script of the seed.
pub(crate) fn play_life(seed: u64) -> Played {
    play_parts(seed, None, None)
}

/// Simulates the whole life of a workload with some parts of the seed's script, or all, and with a deliberate bug, or none.
pub(crate) fn play_parts(seed: u64, parts: Option<&BTreeSet<usize>>, bug: Option<Bug>) -> Played {
    let (script, chance) = draw_life(seed);
    let script = match parts {
        Some(parts) => script.only(parts),
        None => script,
    };
    let _on = bug.map(gpuaas_bugs::switch_on);
    play_with((Scenario::WholeLife, seed), chance, script, CommitTiming::Immediate)
}

/// Simulates every operation of a workload, and cancels one in the step with this number among those of its kind; none without it.
pub(crate) fn play_cancelled(seed: u64, cancelled: Option<(StepKind, u32)>) -> Played {
    let script = life::in_order::script(LIFE_NODES, cancelled);
    play_with((Scenario::WholeLife, seed), Chance::of_seed(LIFE), script, CommitTiming::Immediate)
}

/// Returns the parts of the script of a whole life, in words.
pub(crate) fn parts_of_life(seed: u64) -> Vec<String> {
    draw_life(seed).0.parts()
}

/// Draws the script of a whole life, and the source of all other random choices.
fn draw_life(seed: u64) -> (Script, Chance) {
    let mut chance = Chance::of_seed(seed ^ LIFE);
    let mut drawn = chance.fork();
    let faults = Faults::of(&mut drawn).of_life(LIFE_NODES, &mut drawn);
    let script = Script::draw(faults, &mut drawn);
    let script = if seed.is_multiple_of(FOLLOWED_EVERY) { script.followed(&mut drawn) } else { script };
    (script, chance)
}

/// Simulates a deployment on many nodes without faults, with a store that answers in real time. The trace is therefore not
/// reproducible, but the deployment must succeed.
pub(crate) fn play_large(seed: u64) -> Played {
    play_with(
        (Scenario::OneDeployment, seed),
        Chance::of_seed(seed),
        Script::of_faults(Faults::none(LARGE_NODES)),
        CommitTiming::Asynchronous,
    )
}

fn play_with(seed: (Scenario, u64), chance: Chance, script: Script, answers: CommitTiming) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime is made");
    // Unconstrained, because the seed does not control when tokio refills its cooperative budget.
    runtime.block_on(tokio::task::unconstrained(play_here(seed, chance, script, answers)))
}

async fn play_here(
    (scenario, seed): (Scenario, u64),
    mut chance: Chance,
    script: Script,
    answers: CommitTiming,
) -> Played {
    let scheduler = Scheduler::new(Simulation::START, chance.fork());
    let folder = folder();
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock(scheduler.clone()));
    let options = empty_database(folder.path(), clock.clone()).await;
    let store = Store::open_simulated(&options, clock, answers).await.expect("a store is made");
    let simulation = Simulation::new(scenario, scheduler.clone(), store.clone(), chance, script.faults.clone());
    let watch = {
        let simulation = Arc::downgrade(&simulation);
        gpuaas_crash_points::watch(move |point| {
            if let Some(simulation) = simulation.upgrade() {
                simulation.reached(point);
            }
        })
    };
    let deployed = Arc::new(Mutex::new(None));
    let (result, people) = (deployed.clone(), simulation.clone());
    scheduler.spawn(simulation.outside, async move {
        let end = match scenario {
            Scenario::OneDeployment => people::deploy(people).await.map(Some),
            Scenario::TwoTenants => tenancy::run_seed(people).await.map(|()| None),
            Scenario::WholeLife => Box::pin(life::run_seed(people, script)).await.map(Some),
        };
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    });
    if answers == CommitTiming::Immediate {
        oracles::backups::take(&simulation, seed);
    }
    let is_over = || {
        simulation.restart_dead();
        deployed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    };
    let ran = scheduler.run(&store, Simulation::START.plus(DURATION_MAX), is_over).await;
    drop(watch);
    let deployed = deployed.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut rows = Vec::new();
    match (ran, deployed) {
        (Err(why), _) | (Ok(()), Some(Err(why))) => simulation.report_violation(Oracle::Run, why),
        (Ok(()), None) => simulation.report_violation(Oracle::Run, "the clients ended without a result".to_owned()),
        // Effects were judged when they happened; only archived and deleted history remains to be judged.
        (Ok(()), Some(Ok(None))) => {
            if let Err(error) = oracles::check_history(&simulation).await {
                simulation.report_violation(Oracle::Run, format!("the rows cannot be read: {error}"));
            }
        }
        (Ok(()), Some(Ok(Some(deployed)))) => match oracles::check(&simulation, scenario, &deployed).await {
            Ok(lines) => rows = lines,
            Err(error) => simulation.report_violation(Oracle::Run, format!("the rows cannot be read: {error}")),
        },
    }
    simulation.shut_down();
    store.close().await;
    let injected = simulation.injected.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (mut trace, violations) = (simulation.take_trace(), simulation.violations());
    trace.extend(rows);
    let unsettled = simulation.unsettled();
    Played { seed, hash: sha256_hex(trace.join("\n").as_bytes()), trace, violations, unsettled, injected }
}

/// Creates a temporary folder, in `/dev/shm` if that exists: a seed makes thousands of durable changes, which are faster in memory.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).expect("a folder is made")
}

/// Creates a database without rows in the folder. It is a copy of the first one of this process, because creating the schema takes as long as
/// thousands of statements. The store that opens it checks its schema like that of every database.
pub(crate) async fn empty_database(folder: &Path, clock: Arc<dyn Clock>) -> StoreOptions {
    static FIRST: OnceCell<Vec<u8>> = OnceCell::const_new();
    let first = FIRST.get_or_init(|| first_database(clock)).await;
    std::fs::write(database_in(folder), first).expect("a file is written");
    options_in(folder)
}

/// Returns the file of a store that was opened for the first time and closed.
async fn first_database(clock: Arc<dyn Clock>) -> Vec<u8> {
    let folder = folder();
    let store = Store::open(&options_in(folder.path()), clock).await.expect("a store is made");
    store.close().await;
    assert!(!folder.path().join("store.db-wal").exists(), "what is in the log would not be copied");
    std::fs::read(database_in(folder.path())).expect("a closed store is one file")
}

fn options_in(folder: &Path) -> StoreOptions {
    StoreOptions { url: format!("sqlite://{}", database_in(folder).display()) }
}

fn database_in(folder: &Path) -> PathBuf {
    folder.join("store.db")
}
