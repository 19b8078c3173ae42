//! The units that an init has loaded, their journals, and what is enabled or masked.

use std::{cell::RefCell, collections::BTreeMap, fs, io, os::unix::fs::symlink};

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{UnitFileState, sandbox::SandboxEnvironment};

use crate::{journal::Journal, unit::Unit, unit_file::UnitFile};

/// Folders of unit files; the first with a unit's file counts.
const UNIT_FOLDERS: &[&str] = &["etc/systemd/system", "usr/local/lib/systemd/system", "lib/systemd/system"];

/// The file to which the link of a masked unit leads.
const NOWHERE: &str = "/dev/null";

/// The state that the socket's connections share.
pub(crate) struct Units {
    pub(crate) environment: SandboxEnvironment,
    units: RefCell<BTreeMap<String, Unit>>,
    /// Journals outlive their units, so that followers get a unit's new lines when it comes back.
    journals: RefCell<BTreeMap<String, Journal>>,
}

impl Units {
    pub(crate) fn new(environment: SandboxEnvironment) -> Self {
        Self { environment, units: RefCell::default(), journals: RefCell::default() }
    }

    /// Returns a unit, loaded from its file if it was not loaded yet; `None` if it has no valid file.
    pub(crate) fn unit(&self, name: &str) -> Option<Unit> {
        if let Some(unit) = self.units.borrow().get(name) {
            return Some(unit.clone());
        }
        let file = self.load(name)?;
        let journal = self.open_journal(name);
        let unit = Unit::new(name, file, &self.environment, journal);
        self.units.borrow_mut().insert(name.to_owned(), unit.clone());
        Some(unit)
    }

    /// Returns the journal of a unit that is loaded, or was since this init started.
    pub(crate) fn journal(&self, name: &str) -> Option<Journal> {
        let known = self.journals.borrow().get(name).cloned();
        known.or_else(|| self.unit(name).map(|_| self.open_journal(name)))
    }

    fn open_journal(&self, name: &str) -> Journal {
        let open = || Journal::open(&self.environment.root.join(".sandbox/journal"), name);
        self.journals.borrow_mut().entry(name.to_owned()).or_insert_with(open).clone()
    }

    /// Reloads the unit files; drops units that are inactive and whose file no longer exists.
    pub(crate) fn reload(&self) {
        self.units.borrow_mut().retain(|name, unit| match self.load(name) {
            Some(file) => {
                *unit.file.borrow_mut() = file;
                true
            }
            None => unit.status.borrow().active != "inactive",
        });
    }

    fn load(&self, name: &str) -> Option<UnitFile> {
        let text = self
            .unit_paths(name)
            .iter()
            .filter(|path| !is_mask(path))
            .find_map(|path| fs::read_to_string(path).ok())?;
        match UnitFile::parse(name, &text) {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::warn!(unit = name, %error, "a unit file cannot be parsed");
                None
            }
        }
    }

    /// Returns the paths at which a unit's file can be, the one that counts first; none for a name that is no service's.
    fn unit_paths(&self, name: &str) -> Vec<Utf8PathBuf> {
        let is_valid = name.ends_with(".service") && !name.contains('/');
        let folders = UNIT_FOLDERS.iter().filter(|_| is_valid);
        folders.map(|folder| self.environment.root.join(folder).join(name)).collect()
    }

    /// Returns true if nothing can start the unit. Its status is still that of the file that the mask hides.
    pub(crate) fn is_masked(&self, name: &str) -> bool {
        self.unit_paths(name).iter().find(|path| path.symlink_metadata().is_ok()).is_some_and(|path| is_mask(path))
    }

    /// Masks a unit or lifts its mask, without a reload; returns true if that changed. Refuses to mask a unit whose file is in the
    /// administrator's folder, as systemd does.
    pub(crate) fn mask(&self, name: &str, masked: bool) -> io::Result<bool> {
        let paths = self.unit_paths(name);
        let path = paths.first().ok_or(io::ErrorKind::InvalidInput)?;
        match (is_mask(path), masked) {
            (true, true) | (false, false) => Ok(false),
            (true, false) => fs::remove_file(path).map(|()| true),
            (false, true) => symlink(NOWHERE, path).map(|()| true),
        }
    }

    /// Returns what the unit files say about a unit.
    pub(crate) fn file_state(&self, name: &str) -> UnitFileState {
        if self.is_masked(name) {
            UnitFileState::Masked
        } else if self.load(name).is_none() {
            UnitFileState::Missing
        } else if self.enabled().iter().any(|enabled| enabled == name) {
            UnitFileState::Enabled
        } else {
            UnitFileState::Disabled
        }
    }

    /// Returns the names of the units that are enabled at boot.
    pub(crate) fn enabled(&self) -> Vec<String> {
        let text = fs::read_to_string(self.environment.root.join(".sandbox/enabled")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Enables or disables a unit at boot; returns true if that changed.
    pub(crate) fn enable(&self, name: &str, enabled: bool) -> io::Result<bool> {
        let mut names = self.enabled();
        let before = names.len();
        names.retain(|known| known != name);
        if enabled {
            names.push(name.to_owned());
        }
        let changed = enabled != (before > names.len() - usize::from(enabled));
        if !changed {
            return Ok(false);
        }
        let path = self.environment.root.join(".sandbox/enabled");
        let draft = path.with_extension("draft");
        fs::write(&draft, names.join("\n"))?;
        fs::rename(draft, path)?;
        Ok(true)
    }

    /// Stops every unit that runs.
    pub(crate) async fn stop_all(&self) {
        let units: Vec<Unit> = self.units.borrow().values().cloned().collect();
        let stops = units.iter().filter(|unit| !unit.is_stopped()).map(Unit::stop);
        futures::future::join_all(stops).await;
    }
}

/// Returns true for the link of a masked unit.
fn is_mask(path: &Utf8Path) -> bool {
    path.read_link_utf8().is_ok_and(|target| target == NOWHERE)
}
