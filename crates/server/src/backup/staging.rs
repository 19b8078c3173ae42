//! The folder in which a restore prepares everything, and the journal of what it then puts in place.
//!
//! Guarantees: nothing is in place before the journal is written. The journal lists everything that did not exist before, so that it can be
//! removed again until the rows are in place. The rows come last, all at once, and name the restore that wrote them. The folder is removed
//! when the restore has succeeded or failed: if it exists, a restore was interrupted, and no control plane serves.

use std::{
    fs::{self, DirBuilder},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use gpuaas_store::Store;
use serde::{Deserialize, Serialize};

use super::Restored;
use crate::{
    data_dir::{self, UNFINISHED_RESTORE, write_private, write_private_for},
    error::{BackupError, ServerError},
    options::ServerOptions,
    sealing_key::KeyFiles,
};

const JOURNAL: &str = "journal.json";

/// The content of the journal: everything that a restore puts in place, recorded before the first change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    /// Id of the restore; the restored rows contain it.
    pub(super) id: String,
    /// Result to report once the rows are in place.
    pub(super) restored: Restored,
    /// Whether the rows go into a shared database.
    pub(super) is_shared: bool,
    /// The configured artifacts directory.
    pub(super) artifacts_dir: Option<PathBuf>,
    /// Digests of the artifacts that did not exist before.
    pub(super) artifacts: Vec<String>,
    /// Whether the restore adds the sealing key to the data directory.
    pub(super) brings_key: bool,
    /// Whether the restore adds the next sealing key to the data directory.
    pub(super) brings_next_key: bool,
}

/// The staging folder of a data directory.
pub(super) struct Staging {
    data_dir: PathBuf,
    folder: PathBuf,
}

impl Staging {
    pub(super) fn in_folder(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), folder: data_dir.join(UNFINISHED_RESTORE) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates the empty folder.
    pub(super) fn begin(&self) -> Result<(), BackupError> {
        DirBuilder::new().mode(0o700).create(&self.folder).map_err(|source| file_error(self.folder.clone(), source))
    }

    /// Writes the journal durably.
    pub(super) fn write(&self, journal: &Journal) -> Result<(), BackupError> {
        let path = self.join(JOURNAL);
        let bytes = serde_json::to_vec_pretty(journal).map_err(|error| file_error(path.clone(), error.into()))?;
        write_private(&path, &bytes).map_err(|source| file_error(path, source))
    }

    /// Copies a file from the folder into the data directory, replacing any existing one, and gives it to the directory's owner.
    pub(super) fn put(&self, name: &str) -> Result<(), BackupError> {
        let (from, to) = (self.join(name), self.data_dir.join(name));
        let put = || {
            let owner = fs::metadata(&self.data_dir)?;
            write_private_for((owner.uid(), owner.gid()), &to, &fs::read(&from)?)
        };
        put().map_err(|source| file_error(to.clone(), source))
    }

    /// Ends a restore whose rows are in place: puts the high-water mark of their history in place and removes the folder. An earlier mark
    /// does not describe these rows; no control plane reads it while the folder exists.
    pub(super) fn end(&self) -> Result<(), BackupError> {
        // If the folder has no mark, its removal was interrupted after this step.
        if self.join(data_dir::MARK).exists() {
            self.put(data_dir::MARK)?;
        }
        self.remove()
    }

    /// Removes the folder, which ends the restore.
    fn remove(&self) -> Result<(), BackupError> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error(self.folder.clone(), error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Cleans up after an earlier restore. If its rows are in place, everything is: finishes it and returns its result. Otherwise removes
    /// everything that it put in place.
    pub(super) async fn recover(&self, options: &ServerOptions) -> Result<Option<Restored>, ServerError> {
        if !self.folder.is_dir() {
            return Ok(None);
        }
        let Some(journal) = self.journal()? else {
            self.remove()?;
            return Ok(None);
        };
        if (journal.is_shared, &journal.artifacts_dir) != (options.store_url.is_some(), &options.artifacts_dir) {
            return Err(ServerError::RestoreUnfinished { path: self.data_dir.clone() });
        }
        if Store::inspect_restore_target(&options.store()).await?.restore_id.as_ref() == Some(&journal.id) {
            self.end()?;
            return Ok(Some(journal.restored));
        }
        self.roll_back(&journal, options).await?;
        self.remove()?;
        Ok(None)
    }

    fn journal(&self) -> Result<Option<Journal>, BackupError> {
        let path = self.join(JOURNAL);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| file_error(path, error.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error(path, error)),
        }
    }

    async fn roll_back(&self, journal: &Journal, options: &ServerOptions) -> Result<(), ServerError> {
        let artifacts = options.artifacts_folder();
        if artifacts.is_dir() {
            let store = options.artifacts()?;
            for sha256 in &journal.artifacts {
                store.remove(sha256).await.map_err(BackupError::from)?;
            }
            if options.artifacts_dir.is_none() {
                // Fails if the folder holds artifacts that existed before.
                let _ = fs::remove_dir(&artifacts);
            }
        }
        let [key, next] = KeyFiles::in_folder(&self.data_dir).paths();
        let token = self.data_dir.join(data_dir::ADMIN_TOKEN);
        let added = [(journal.brings_key, key), (journal.brings_next_key, next), (true, token)];
        for (_, file) in added.into_iter().filter(|(is_added, _)| *is_added) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(file_error(file, error).into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn file_error(path: PathBuf, source: std::io::Error) -> BackupError {
    BackupError::File { path, source }
}
