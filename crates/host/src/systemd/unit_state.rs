//! The state of a unit in systemd: read once, then kept up to date by signals.
//!
//! Guarantees: reading loads no unit. systemd unloads a unit that is at rest, and loads it again on any call to the unit's path: a reader
//! that answered each unload signal with such a call would never stop. So a unit that is not loaded is only looked up by its unit file.

use gpuaas_model::Timestamp;
use zbus::message::Sequence;

use super::{
    bus::{Systemd, bus_error, is_missing_file, is_systemd_error, unit_error},
    signals::{Properties, Signals},
};
use crate::{
    error::HostError,
    unit::{UnitFileState, UnitStatus},
};

/// A unit that is loaded, or that has a unit file.
#[derive(Clone, Debug)]
pub(super) struct UnitState {
    pub(super) status: UnitStatus,
    /// True if systemd has the unit loaded.
    pub(super) loaded: bool,
    /// True if a job of the unit waits or runs.
    has_job: bool,
    /// True if the unit has a file; units without one can be loaded because another unit names them.
    found: bool,
}

impl UnitState {
    /// Returns the state of a unit that is not loaded: never started since systemd unloaded it.
    fn unloaded(unit: &str) -> Self {
        let status = UnitStatus {
            unit: unit.to_owned(),
            active: "inactive".to_owned(),
            sub: "dead".to_owned(),
            result: "success".to_owned(),
            n_restarts: 0,
            exec_main_status: 0,
            main_pid: 0,
            started_at: None,
            since: Timestamp::from_millis(0),
        };
        Self { status, loaded: false, has_job: false, found: true }
    }

    /// Applies the changed properties.
    pub(super) fn apply(&mut self, changed: Properties) {
        let status = &mut self.status;
        self.loaded = true;
        self.found = changed.load_state.map_or(self.found, |state| state != "not-found");
        self.has_job = changed.job.map_or(self.has_job, |(id, _)| id != 0);
        changed.active_state.into_iter().for_each(|active| status.active = active);
        changed.sub_state.into_iter().for_each(|sub| status.sub = sub);
        changed.result.into_iter().for_each(|result| status.result = result);
        status.n_restarts = changed.n_restarts.unwrap_or(status.n_restarts);
        status.exec_main_status = changed.exec_main_status.unwrap_or(status.exec_main_status);
        if let Some(pid) = changed.main_pid {
            status.main_pid = i32::try_from(pid).unwrap_or_default();
        }
        if let Some(micros) = changed.exec_main_start_timestamp {
            status.started_at = (micros > 0).then(|| from_micros(micros));
        }
        if let Some(micros) = changed.state_change_timestamp {
            status.since = from_micros(micros);
        }
    }

    /// Returns true if nothing of the unit runs.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.status.active.as_str(), "inactive" | "failed")
    }

    /// Returns true if nothing of the unit runs and no job waits.
    pub(super) fn is_idle(&self) -> bool {
        self.is_stopped() && !self.has_job
    }

    /// Returns true if the unit runs, or is starting.
    pub(super) fn is_running_or_starting(&self) -> bool {
        matches!(self.status.active.as_str(), "active" | "activating" | "reloading" | "refreshing")
    }

    /// Returns true if the unit exists: it has a file, or is active without one.
    fn exists(&self) -> bool {
        self.found || self.status.active != "inactive"
    }
}

fn from_micros(micros: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(micros / 1_000).unwrap_or(i64::MAX))
}

/// Reads a unit's state; `None` if the unit does not exist.
pub(super) async fn query(systemd: &Systemd, unit: &str) -> Result<Option<UnitState>, HostError> {
    query_with_sequence(systemd, unit).await.map(|(known, _)| known)
}

/// Reads a unit's state, and drops signals that are older than the answer.
pub(super) async fn query_with_signals(
    systemd: &Systemd,
    unit: &str,
    signals: &mut Signals,
) -> Result<Option<UnitState>, HostError> {
    let (known, moment) = signals.queue_during(query_with_sequence(systemd, unit)).await?;
    signals.drop_before(moment);
    Ok(known)
}

/// Reads a unit's state (`None` if the unit does not exist), and the answer's position among the signals.
pub(super) async fn query_with_sequence(
    systemd: &Systemd,
    unit: &str,
) -> Result<(Option<UnitState>, Sequence), HostError> {
    let path = match systemd.manager.get_unit(unit).await {
        Ok(path) => path,
        Err(zbus::Error::MethodError(name, text, answer)) => {
            let moment = answer.recv_position();
            let error = zbus::Error::MethodError(name, text, answer);
            if !is_systemd_error(&error, ".NoSuchUnit") {
                return Err(unit_error(unit)(error));
            }
            let known = has_file(systemd, unit).await?.then(|| UnitState::unloaded(unit));
            return Ok((known, moment));
        }
        Err(error) => return Err(unit_error(unit)(error)),
    };
    let answer = systemd.properties(&path).await.map_err(unit_error(unit))?;
    let mut known = UnitState::unloaded(unit);
    known.apply(answer.body().deserialize().map_err(bus_error)?);
    Ok((Some(known).filter(UnitState::exists), answer.recv_position()))
}

/// Returns true if a unit that is not loaded has a file.
async fn has_file(systemd: &Systemd, unit: &str) -> Result<bool, HostError> {
    Ok(file_state(systemd, unit).await? != UnitFileState::Missing)
}

/// Returns what the unit files say about a unit. Loads no unit.
pub(super) async fn file_state(systemd: &Systemd, unit: &str) -> Result<UnitFileState, HostError> {
    match systemd.manager.get_unit_file_state(unit).await {
        Ok(state) => Ok(file_state_named(&state)),
        Err(error) if is_missing_file(&error) || is_systemd_error(&error, ".NoSuchUnit") => Ok(UnitFileState::Missing),
        Err(error) => Err(unit_error(unit)(error)),
    }
}

/// Maps a state of `systemctl is-enabled`. A unit that is enabled until the next boot does not start at every boot; a state without links
/// of the unit's own (`static`, `generated`, `bad`) starts nothing at boot.
fn file_state_named(state: &str) -> UnitFileState {
    match state {
        "enabled" => UnitFileState::Enabled,
        "masked" | "masked-runtime" => UnitFileState::Masked,
        "not-found" => UnitFileState::Missing,
        _ => UnitFileState::Disabled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(active: &str) -> Properties {
        Properties { active_state: Some(active.to_owned()), ..Properties::default() }
    }

    #[test]
    fn properties_missing_from_a_signal_keep_their_values() {
        let mut known = UnitState::unloaded("a.service");
        let began = Some(1_790_000_000_007_999);
        known.apply(Properties { exec_main_start_timestamp: Some(0), ..Properties::default() });
        assert_eq!(known.status.started_at, None, "systemd reports 0 for what never happened");
        known.apply(Properties {
            n_restarts: Some(3),
            main_pid: Some(7),
            exec_main_start_timestamp: began,
            ..changed("active")
        });
        known.apply(Properties { sub_state: Some("running".to_owned()), ..Properties::default() });
        let status = &known.status;
        assert!(status.is_running() && known.loaded);
        assert_eq!((status.n_restarts, status.main_pid, status.result.as_str()), (3, 7, "success"));
        assert_eq!(status.started_at, Some(Timestamp::from_millis(1_790_000_000_007)));
    }

    #[test]
    fn unit_with_a_job_is_not_idle() {
        let mut known = UnitState::unloaded("a.service");
        assert!(known.is_idle() && !known.is_running_or_starting());
        known.apply(Properties {
            job: Some((4, zbus::OwnedObjectPath::try_from("/j").unwrap())),
            ..changed("inactive")
        });
        assert!(!known.is_idle());
        known.apply(Properties { job: Some((0, zbus::OwnedObjectPath::try_from("/").unwrap())), ..changed("failed") });
        assert!(known.is_idle());
    }

    #[test]
    fn only_permanently_enabled_unit_starts_at_every_boot() {
        for (state, expected) in [
            ("enabled", UnitFileState::Enabled),
            ("enabled-runtime", UnitFileState::Disabled),
            ("static", UnitFileState::Disabled),
            ("masked-runtime", UnitFileState::Masked),
            ("not-found", UnitFileState::Missing),
        ] {
            assert_eq!(file_state_named(state), expected, "{state}");
        }
    }

    #[test]
    fn unit_exists_if_it_has_a_file_or_runs() {
        let mut known = UnitState::unloaded("a.service");
        known.apply(Properties { load_state: Some("not-found".to_owned()), ..changed("inactive") });
        assert!(!known.exists());
        known.apply(changed("active"));
        assert!(known.exists() && known.is_running_or_starting());
    }
}
