//! The record of an uninstall that began and has not ended: an attempt after a crash reads what the first one found and did.

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::Rke2Uninstalled;
use gpuaas_handler::host_failed;
use gpuaas_host::{FileSpec, Host};
use gpuaas_wire::{bounds::NAME_BYTES_MAX, task::TaskFailure};
use serde::{Deserialize, Serialize};

const RECORD: &str = "/var/lib/gpuaas-agent/rke2-uninstall";
/// More than the most entries of the longest names take as JSON.
const RECORD_BYTES_MAX: u64 = 128 * 1_024;

/// What an uninstall found and did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) script: Script,
    /// Paths and units that existed when the first attempt began; at most [`Rke2Uninstalled::FOUND_MAX`].
    pub(crate) found: Vec<String>,
}

/// How far the uninstall script came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Script {
    /// There was none.
    #[default]
    Missing,
    /// It was started. If it no longer exists, it has completed: it removes itself last.
    Started,
    /// It ended with this status; `None` if a signal ended it.
    Ended(Option<i32>),
}

impl Script {
    /// Returns the exit status for the result, of a script that no longer runs.
    pub(crate) fn exit_status(self) -> Option<i32> {
        match self {
            Self::Missing | Self::Ended(None) => None,
            Self::Started => Some(0),
            Self::Ended(Some(status)) => Some(status),
        }
    }
}

impl Record {
    /// Adds what exists now and is not recorded yet.
    pub(crate) fn add(&mut self, found: Vec<String>) {
        for name in found {
            let is_new = name.len() <= NAME_BYTES_MAX && !self.found.contains(&name);
            if is_new && self.found.len() < Rke2Uninstalled::FOUND_MAX {
                self.found.push(name);
            }
        }
    }

    /// Reads the record of an uninstall that has not ended; `None` if there is none.
    pub(crate) async fn read(host: &dyn Host) -> Result<Option<Self>, TaskFailure> {
        let read = host.files().read(Utf8Path::new(RECORD), RECORD_BYTES_MAX).await.map_err(host_failed)?;
        Ok(read.map(|content| serde_json::from_slice(&content).unwrap_or_else(|_| Self::of_older_agent(&content))))
    }

    /// Reads a record that contains the script's status as a number, or nothing while it runs.
    fn of_older_agent(content: &[u8]) -> Self {
        let status = String::from_utf8_lossy(content).trim().parse().ok();
        let script = status.map_or(Script::Started, |status| Script::Ended(Some(status)));
        Self { script, found: Vec::new() }
    }

    /// Writes the record before the step that it announces.
    pub(crate) async fn write(&self, host: &dyn Host) -> Result<(), TaskFailure> {
        let content = serde_json::to_vec(self).expect("a record has only texts and numbers");
        match host.files().write(&FileSpec { path: RECORD.into(), mode: 0o600, content }).await {
            // The uninstall is what frees the disk.
            Err(error) if error.is_full() => {
                tracing::warn!(%error, "could not record the progress of an uninstall");
                Ok(())
            }
            written => written.map(drop).map_err(host_failed),
        }
    }

    /// Removes the record of an uninstall that has ended.
    pub(crate) async fn remove(host: &dyn Host) -> Result<(), TaskFailure> {
        host.files().remove(Utf8Path::new(RECORD)).await.map(drop).map_err(host_failed)
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::sandbox;

    use super::*;

    #[tokio::test]
    async fn written_record_and_those_of_older_agents_are_read() {
        let (folder, host) = sandbox(&[]);
        assert_eq!(Record::read(host.as_ref()).await.unwrap(), None);
        let record = Record { script: Script::Ended(Some(3)), found: vec!["/etc/cni".to_owned()] };
        record.write(host.as_ref()).await.unwrap();
        assert_eq!(Record::read(host.as_ref()).await.unwrap(), Some(record));
        for (text, status) in [("", Some(0)), ("0", Some(0)), ("3", Some(3))] {
            std::fs::write(folder.path().join(RECORD.trim_start_matches('/')), text).unwrap();
            let read = Record::read(host.as_ref()).await.unwrap().unwrap();
            assert_eq!((read.script.exit_status(), read.found), (status, Vec::new()), "{text:?}");
        }
        Record::remove(host.as_ref()).await.unwrap();
        assert_eq!(Record::read(host.as_ref()).await.unwrap(), None);
    }

    #[test]
    fn record_is_bounded_and_names_each_path_once() {
        let mut record = Record::default();
        record.add(vec!["/etc/cni".to_owned(), "/etc/cni".to_owned(), "x".repeat(NAME_BYTES_MAX + 1)]);
        assert_eq!(record.found, ["/etc/cni"]);
        record.add((0..1_000).map(|number| number.to_string()).collect());
        assert_eq!(record.found.len(), Rke2Uninstalled::FOUND_MAX);
        let longest = Record { found: vec!["\u{1}".repeat(NAME_BYTES_MAX); Rke2Uninstalled::FOUND_MAX], ..record };
        assert!(serde_json::to_vec(&longest).unwrap().len() as u64 <= RECORD_BYTES_MAX);
    }
}
