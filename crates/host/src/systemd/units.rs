//! Changes to units: start, stop, enable, disable, unmask, reset.

use super::{
    bus::{Systemd, bus_error, is_missing_file, is_systemd_error, unit_error},
    signals::{Signal, Signals, Subscription},
    unit_state::query,
};
use crate::{error::HostError, file::Changed};

/// Job mode: a new job replaces conflicting jobs that wait, as with `systemctl`.
const MODE: &str = "replace";

/// Queues a start. systemd answers when the job is queued; this does not wait for the job's end.
pub(super) async fn start(systemd: &Systemd, unit: &str) -> Result<Changed, HostError> {
    if query(systemd, unit).await?.is_some_and(|known| known.is_running_or_starting()) {
        return Ok(Changed::No);
    }
    systemd.manager.start_unit(unit, MODE).await.map_err(unit_error(unit))?;
    Ok(Changed::Yes)
}

/// Queues a stop and waits for the end of its job.
pub(super) async fn stop(systemd: &Systemd, unit: &str) -> Result<Changed, HostError> {
    let Some(known) = query(systemd, unit).await? else { return Err(not_loaded(unit)) };
    if known.is_idle() {
        return Ok(Changed::No);
    }
    // Subscribe first: the job can end before the call is answered.
    let mut signals = Signals::subscribe(systemd, &[Subscription::Jobs(unit)]).await?;
    let order = signals.queue_during(systemd.manager.stop_unit(unit, MODE)).await;
    let ordered = order.map_err(unit_error(unit))?;
    loop {
        match signals.next().await {
            Some(Signal::JobEnded { job, result }) if job == ordered => {
                return match result.as_str() {
                    "done" => Ok(Changed::Yes),
                    other => Err(refused(unit, format!("the stop job ended as {other}"))),
                };
            }
            Some(_) => {}
            None => return Err(HostError::InitUnreachable("the system bus closed the connection".to_owned())),
        }
    }
}

/// Enables a unit at boot.
pub(super) async fn enable(systemd: &Systemd, unit: &str) -> Result<Changed, HostError> {
    let (is_wanted, changes) =
        systemd.manager.enable_unit_files(&[unit], false, false).await.map_err(unit_error(unit))?;
    if !is_wanted {
        return Err(refused(unit, "the unit file has no [Install] section".to_owned()));
    }
    reload_if_changed(systemd, !changes.is_empty()).await
}

/// Disables a unit at boot.
pub(super) async fn disable(systemd: &Systemd, unit: &str) -> Result<Changed, HostError> {
    match systemd.manager.disable_unit_files(&[unit], false).await {
        Ok(changes) => reload_if_changed(systemd, !changes.is_empty()).await,
        // A unit that does not exist is not started at boot.
        Err(error) if is_missing_file(&error) || is_systemd_error(&error, ".NoSuchUnit") => Ok(Changed::No),
        Err(error) => Err(unit_error(unit)(error)),
    }
}

/// Lifts the permanent mask and the one until the next boot.
pub(super) async fn unmask(systemd: &Systemd, unit: &str) -> Result<Changed, HostError> {
    let mut lifted = 0;
    for until_next_boot in [false, true] {
        match systemd.manager.unmask_unit_files(&[unit], until_next_boot).await {
            Ok(changes) => lifted += changes.len(),
            Err(error) if is_missing_file(&error) || is_systemd_error(&error, ".NoSuchUnit") => {}
            Err(error) => return Err(unit_error(unit)(error)),
        }
    }
    reload_if_changed(systemd, lifted > 0).await
}

/// Reloads systemd if links changed, because they take effect only then; `systemctl` does the same.
async fn reload_if_changed(systemd: &Systemd, changed: bool) -> Result<Changed, HostError> {
    if !changed {
        return Ok(Changed::No);
    }
    reload(systemd).await?;
    Ok(Changed::Yes)
}

/// Resets a unit's failed state and its start counter.
pub(super) async fn reset_failed(systemd: &Systemd, unit: &str) -> Result<Changed, HostError> {
    let Some(known) = query(systemd, unit).await? else { return Err(not_loaded(unit)) };
    if !known.loaded {
        return Ok(Changed::No);
    }
    match systemd.manager.reset_failed_unit(unit).await {
        // systemd has unloaded the unit since the lookup.
        Err(error) if is_systemd_error(&error, ".NoSuchUnit") => Ok(Changed::No),
        Err(error) => Err(unit_error(unit)(error)),
        Ok(()) if known.status.active == "failed" => Ok(Changed::Yes),
        Ok(()) => Ok(Changed::No),
    }
}

/// Reloads the unit files.
pub(super) async fn reload(systemd: &Systemd) -> Result<(), HostError> {
    systemd.manager.reload().await.map_err(bus_error)
}

fn not_loaded(unit: &str) -> HostError {
    refused(unit, format!("Unit {unit} not loaded."))
}

fn refused(unit: &str, message: String) -> HostError {
    HostError::Unit { unit: unit.to_owned(), message }
}
