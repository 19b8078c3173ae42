//! The folder in which a restore makes everything ready, and the journal of what it then puts in place.
//!
//! Guarantees: until the journal is written nothing is in place. The journal names all that was not there before, so that it can be taken away
//! again for as long as the rows are not in place; they come last, whole, and say themselves which restore brought them. The folder goes when the
//! restore has ended, well or not: where it lies, a restore was interrupted, and no control plane serves.

use std::{
    fs::{self, DirBuilder},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use gpuaas_store::Store;
use serde::{Deserialize, Serialize};

use super::{BackupError, Restored};
use crate::{
    data_dir::{write_private, write_private_for},
    error::ServerError,
    first_admin, history,
    options::ServerOptions,
    sealing_key::KeyFiles,
};

/// The folder, in the data directory.
const FOLDER: &str = "restore.unfinished";
const JOURNAL: &str = "journal.json";

/// What a restore puts in place, written down before the first of it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The id of the restore, which its rows carry.
    pub(super) id: String,
    /// What the restore reports once its rows are in place.
    pub(super) restored: Restored,
    /// Whether the rows go into a shared database.
    pub(super) is_shared: bool,
    /// The setting of the folder of artifacts.
    pub(super) artifacts_dir: Option<PathBuf>,
    /// Digests of the artifacts that were not there before.
    pub(super) artifacts: Vec<String>,
    /// Whether the sealing key was not in the data directory before.
    pub(super) brings_key: bool,
    /// Whether the next sealing key was not.
    pub(super) brings_next_key: bool,
}

/// The folder.
pub(super) struct Staging {
    data_dir: PathBuf,
    folder: PathBuf,
}

/// Refuses a data directory in which a restore was interrupted.
pub(crate) fn refuse_unfinished(data_dir: &Path) -> Result<(), ServerError> {
    match data_dir.join(FOLDER).symlink_metadata() {
        // A data directory that cannot be one is told elsewhere.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(source) => Err(failed(data_dir.join(FOLDER), source).into()),
        Ok(_) => Err(ServerError::RestoreUnfinished { path: data_dir.to_owned() }),
    }
}

impl Staging {
    pub(super) fn in_folder(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), folder: data_dir.join(FOLDER) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the folder, empty.
    pub(super) fn begin(&self) -> Result<(), BackupError> {
        DirBuilder::new().mode(0o700).create(&self.folder).map_err(|source| failed(self.folder.clone(), source))
    }

    /// Writes the journal, durably.
    pub(super) fn write(&self, journal: &Journal) -> Result<(), BackupError> {
        let path = self.join(JOURNAL);
        let bytes = serde_json::to_vec_pretty(journal).map_err(|error| failed(path.clone(), error.into()))?;
        write_private(&path, &bytes).map_err(|source| failed(path, source))
    }

    /// Puts a file of the folder where its owner looks for it, in place of any other.
    pub(super) fn put(&self, name: &str) -> Result<(), BackupError> {
        let (from, to) = (self.join(name), self.data_dir.join(name));
        let put = || {
            let owner = fs::metadata(&self.data_dir)?;
            write_private_for((owner.uid(), owner.gid()), &to, &fs::read(&from)?)
        };
        put().map_err(|source| failed(to.clone(), source))
    }

    /// Ends a restore whose rows are in place: puts the high-water mark of their history there and removes the folder. No mark of before says anything of
    /// these rows, and as long as the folder is there no control plane looks at it.
    pub(super) fn end(&self) -> Result<(), BackupError> {
        // Where the folder lacks it, its removal was interrupted, after this.
        if self.join(history::MARK).exists() {
            self.put(history::MARK)?;
        }
        self.remove()
    }

    /// Removes the folder: the restore has ended.
    fn remove(&self) -> Result<(), BackupError> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(self.folder.clone(), error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Ends what an earlier restore has left. Where its rows are in place, so is everything else: returns what it did. Else takes away all that it
    /// put in place.
    pub(super) async fn settle(&self, options: &ServerOptions) -> Result<Option<Restored>, ServerError> {
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
        if Store::look(&options.store()).await?.restore.as_ref() == Some(&journal.id) {
            self.end()?;
            return Ok(Some(journal.restored));
        }
        self.take_back(&journal, options).await?;
        self.remove()?;
        Ok(None)
    }

    fn journal(&self) -> Result<Option<Journal>, BackupError> {
        let path = self.join(JOURNAL);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(path, error.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(path, error)),
        }
    }

    async fn take_back(&self, journal: &Journal, options: &ServerOptions) -> Result<(), ServerError> {
        let artifacts = options.artifacts_folder();
        if artifacts.is_dir() {
            let store = options.artifacts()?;
            for sha256 in &journal.artifacts {
                store.remove(sha256).await.map_err(BackupError::from)?;
            }
            if options.artifacts_dir.is_none() {
                // Not empty, it holds what was there before.
                let _ = fs::remove_dir(&artifacts);
            }
        }
        let [key, next] = KeyFiles::in_folder(&self.data_dir).paths();
        let token = self.data_dir.join(first_admin::FILE);
        let brought = [(journal.brings_key, key), (journal.brings_next_key, next), (true, token)];
        for (_, file) in brought.into_iter().filter(|(is_brought, _)| *is_brought) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(file, error).into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn failed(path: PathBuf, source: std::io::Error) -> BackupError {
    BackupError::File { path, source }
}
