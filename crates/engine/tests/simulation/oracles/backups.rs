//! A backup that is taken at any moment comes back row for row, and the store opens with it.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use gpuaas_model::Clock;
use gpuaas_store::{GENERATION, RESTORED, Store, StoreOptions};
use serde_json::Value;

use crate::{chance::Chance, plane, scheduler::SimulatedClock, seed::folder, world::World};

/// Sets what is decided here apart from all else in a seed: with backups it goes as without.
const BACKUPS: u64 = 0x0bac_4b05;
/// Every so-manieth seed has backups taken,
const EVERY: u64 = 5;
/// and so many.
const BACKUPS_MAX: u32 = 4;
/// Longest time between two.
const APART_MS_MAX: u64 = 40_000;

/// Takes backups at a few moments of some seeds, and restores each.
pub(crate) fn take(world: &Arc<World>, seed: u64) {
    if !seed.is_multiple_of(EVERY) {
        return;
    }
    let within = world.clone();
    world.scheduler.spawn(world.outside, async move {
        let mut chance = Chance::of_seed(seed ^ BACKUPS);
        for _ in 0..BACKUPS_MAX {
            within.scheduler.sleep(Duration::from_millis(chance.between(10, APART_MS_MAX))).await;
            match judge(&within).await {
                Ok(()) => within.count("backups restored"),
                Err(why) => within.violated(format!("a backup: {why}")),
            }
        }
    });
}

async fn judge(world: &World) -> Result<(), String> {
    let mut dumped = Vec::new();
    world.store.dump(&mut dumped).await.map_err(|error| error.to_string())?;
    let clock = Arc::new(SimulatedClock(world.scheduler.clone()));
    // On a thread of its own, and waited for: the other store takes none of the simulation's time, and no turn of anybody's.
    let judged = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(restored(&dumped, clock))
    });
    judged.join().map_err(|_| "restoring it panicked".to_owned())?
}

async fn restored(dumped: &[u8], clock: Arc<dyn Clock>) -> Result<(), String> {
    let folder = folder();
    let again = restore_and_dump(dumped, clock.clone(), folder.path()).await.map_err(|error| error.to_string())?;
    let (before, after) = (rows(dumped)?, rows(&again)?);
    if before.values().all(Vec::is_empty) {
        return Err("it holds no rows".to_owned());
    }
    for table in before.keys().chain(after.keys()) {
        if before.get(table) != after.get(table) {
            return Err(format!("{table} was {:?} and is {:?}", before.get(table), after.get(table)));
        }
    }
    opens(clock, folder.path()).await
}

fn options(folder: &Path) -> StoreOptions {
    StoreOptions { url: format!("sqlite://{}", folder.join("restored.db").display()) }
}

async fn restore_and_dump(
    dumped: &[u8],
    clock: Arc<dyn Clock>,
    folder: &Path,
) -> Result<Vec<u8>, gpuaas_store::DumpError> {
    let store = Store::open(&options(folder), clock).await?;
    store.restore(&mut &dumped[..]).await?;
    let mut again = Vec::new();
    store.dump(&mut again).await?;
    store.close().await;
    Ok(again)
}

/// Opens it as the next start does, and reads everything.
async fn opens(clock: Arc<dyn Clock>, folder: &Path) -> Result<(), String> {
    let failed = |error: gpuaas_store::StoreError| error.to_string();
    let store = Store::open(&options(folder), clock).await.map_err(failed)?;
    store.prove_with(plane::proof());
    store.read_every_row().await.map_err(failed)?;
    let keys = store.read().await.map_err(failed)?.signing_keys().await.map_err(failed)?;
    store.close().await;
    if keys.is_empty() || store.forged_rows_refused() > 0 {
        return Err("what was genuine is forged".to_owned());
    }
    Ok(())
}

/// The rows of a dump by table, without what a restore changes.
fn rows(dumped: &[u8]) -> Result<BTreeMap<String, Vec<Value>>, String> {
    let (mut rows, mut table) = (BTreeMap::<String, Vec<Value>>::new(), String::new());
    for line in dumped.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if let Some(name) = line["table"]["name"].as_str() {
            name.clone_into(&mut table);
        }
        let Some(cells) = line["row"].as_array() else { continue };
        let row = match table.as_str() {
            "settings" if cells.first().is_some_and(|name| name == RESTORED || name == GENERATION) => continue,
            // Fences leap, and nobody holds any.
            "leases" => Value::Array(cells.iter().take(2).cloned().collect()),
            _ => Value::Array(cells.clone()),
        };
        rows.entry(table.clone()).or_default().push(row);
    }
    Ok(rows)
}
