//! Checks that a backup taken at any time restores every row, and that the store opens with the restored rows.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use gpuaas_model::Clock;
use gpuaas_store::{GENERATION, RESTORED, Store, StoreOptions};
use serde_json::Value;

use gpuaas_test_support::Chance;

use super::Oracle;
use crate::{
    plane,
    scheduler::SimulatedClock,
    seed::{empty_database, folder},
    simulation::Simulation,
};

/// Mixed into the seed for the random choices of this module, so that backups do not change the rest of the simulation.
const BACKUPS: u64 = 0x0bac_4b05;
/// Backups are taken in every 5th seed.
const EVERY: u64 = 5;
/// The number of backups per seed.
const BACKUPS_MAX: u32 = 4;
/// The longest time between two backups, in milliseconds.
const INTERVAL_MS_MAX: u64 = 40_000;

/// The start of a line with a row.
const ROW: &[u8] = b"{\"row\":";

/// Takes backups at random times in every [`EVERY`]th seed, restores each and judges it.
pub(crate) fn take(simulation: &Arc<Simulation>, seed: u64) {
    if !seed.is_multiple_of(EVERY) {
        return;
    }
    let within = simulation.clone();
    simulation.scheduler.spawn(simulation.outside, async move {
        let mut chance = Chance::of_seed(seed ^ BACKUPS);
        for _ in 0..BACKUPS_MAX {
            within.scheduler.sleep(Duration::from_millis(chance.between(10, INTERVAL_MS_MAX))).await;
            match check(&within).await {
                Ok(()) => within.count("backups restored"),
                Err(why) => within.report_violation(Oracle::Backups, format!("a backup: {why}")),
            }
        }
    });
}

async fn check(simulation: &Simulation) -> Result<(), String> {
    let mut dumped = Vec::new();
    simulation.store.dump(&mut dumped).await.map_err(|error| error.to_string())?;
    let clock = Arc::new(SimulatedClock(simulation.scheduler.clone()));
    // Runs on a separate thread and blocks until it ends, so that the other store takes no simulated time and no task runs meanwhile.
    let checker = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(check_restored(&dumped, clock))
    });
    checker.join().map_err(|_| "restoring it panicked".to_owned())?
}

async fn check_restored(dumped: &[u8], clock: Arc<dyn Clock>) -> Result<(), String> {
    let folder = folder();
    let options = empty_database(folder.path(), clock.clone()).await;
    let again = restore_and_dump(dumped, clock.clone(), &options).await.map_err(|error| error.to_string())?;
    let (before, after) = (rows(dumped)?, rows(&again)?);
    if before.values().all(Vec::is_empty) {
        return Err("it holds no rows".to_owned());
    }
    for table in before.keys().chain(after.keys()) {
        if before.get(table) != after.get(table) {
            return Err(format!("{table} was {:?} and is {:?}", before.get(table), after.get(table)));
        }
    }
    check_opens(clock, &options).await
}

async fn restore_and_dump(
    dumped: &[u8],
    clock: Arc<dyn Clock>,
    options: &StoreOptions,
) -> Result<Vec<u8>, gpuaas_store::DumpError> {
    let store = Store::open(options, clock).await?;
    store.restore(&mut &dumped[..]).await?;
    let mut again = Vec::new();
    store.dump(&mut again).await?;
    store.close().await;
    Ok(again)
}

/// Opens the restored store as the next start of a server does, and reads every row.
async fn check_opens(clock: Arc<dyn Clock>, options: &StoreOptions) -> Result<(), String> {
    let failed = |error: gpuaas_store::StoreError| error.to_string();
    let store = Store::open(options, clock).await.map_err(failed)?;
    store.set_record_proof(plane::proof());
    store.read_every_row().await.map_err(failed)?;
    let keys = store.read().await.map_err(failed)?.signing_keys().await.map_err(failed)?;
    store.close().await;
    if keys.is_empty() || store.forged_rows_refused() > 0 {
        return Err("authentic rows are refused as forged".to_owned());
    }
    Ok(())
}

/// Returns the rows of a dump by table, as the dump writes them, without the values that a restore changes.
fn rows(dumped: &[u8]) -> Result<BTreeMap<String, Vec<Cow<'_, str>>>, String> {
    let (mut rows, mut table) = (BTreeMap::<String, Vec<Cow<'_, str>>>::new(), String::new());
    let parse = |line| serde_json::from_slice::<Value>(line).map_err(|error| error.to_string());
    for line in dumped.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if !line.starts_with(ROW) {
            let parsed = parse(line)?;
            if let Some(name) = parsed["table"]["name"].as_str() {
                name.clone_into(&mut table);
            }
            continue;
        }
        let row = match table.as_str() {
            "settings" => {
                let parsed = parse(line)?;
                let name = &parsed["row"][0];
                if name == RESTORED || name == GENERATION {
                    continue;
                }
                String::from_utf8_lossy(line)
            }
            // A restore raises the fences and expires the leases, so only names and holders are compared.
            "leases" => {
                let parsed = parse(line)?;
                format!("{} {}", parsed["row"][0], parsed["row"][1]).into()
            }
            _ => String::from_utf8_lossy(line),
        };
        rows.entry(table.clone()).or_default().push(row);
    }
    Ok(rows)
}
