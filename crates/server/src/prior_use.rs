//! Distinguishes the first start from a start whose store is missing, before anything is created or written.
//!
//! Guarantees: a used data directory gets no second platform unless an operator requests one, and then nothing of the first is overwritten.
//! Files that mark the directory as used are written only after the first rows are durable. Only the sealing key is written before them, so
//! a marker file lies next to it until they are.
//!
//! Deliberately absent: detecting a history that went back. A store of an earlier time holds a platform.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use gpuaas_model::{Clock, Entropy};
use gpuaas_store::Contents;
use gpuaas_trust::SealingKeys;

use crate::{
    data_dir::{ADMIN_TOKEN, CA_FILE, DataDir, MARK, REPLICA, write_private},
    error::ServerError,
    options::{LOCAL_STORE, ServerOptions},
    sealing_key::{self, KeyFiles},
};

/// Marker file in the data directory from before the first sealing key is made until the first rows are durable.
const FIRST_START: &str = "first-start";
/// Explanation in the marker file.
const ABOUT_FIRST_START: &[u8] =
    b"The first start of this control plane is not complete: no row may be encrypted with this sealing key yet.\n";
/// Folder of imported artifacts, unless another one is configured.
const ARTIFACTS: &str = "artifacts";
/// Name prefix of the folder that receives the remains of an earlier platform.
const MOVED: &str = "before-";

/// The state of the store at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartKind {
    /// No platform: this start creates it.
    First,
    /// A platform.
    Later,
}

/// Decides which start this is. Moves or changes files only with `reinitialize`.
pub(crate) async fn start_kind(
    data: &DataDir,
    options: &ServerOptions,
    clock: &dyn Clock,
) -> Result<StartKind, ServerError> {
    let store = options.store();
    store.quick_check().await?;
    let contents = store.inspect().await?;
    let left = platform_files(options, contents);
    match (contents, options.reinitialize) {
        (Contents::Platform, true) => Err(ServerError::PlatformExists { place: store.place() }),
        (Contents::Platform, false) => Ok(StartKind::Later),
        (_, _) if left.is_empty() => Ok(StartKind::First),
        (_, true) => {
            let folder = move_aside(data.path(), options, clock)?;
            tracing::warn!(folder = %folder.display(), "a new control plane begins; the old files were moved");
            Ok(StartKind::First)
        }
        (lack, false) => Err(missing(options, lack, left)),
    }
}

/// Refuses a store without a platform, even if the data directory is new. For commands that need an existing platform.
pub(crate) async fn require_platform(options: &ServerOptions) -> Result<(), ServerError> {
    match options.store().inspect().await? {
        Contents::Platform => Ok(()),
        lack => Err(missing(options, lack, platform_files(options, lack))),
    }
}

fn missing(options: &ServerOptions, lack: Contents, left: Vec<String>) -> ServerError {
    let (place, data_dir) = (options.store().place(), options.data_dir.clone());
    ServerError::StoreMissing { place, lack: lack.description(), data_dir, left: left.join(", ") }
}

impl StartKind {
    /// Returns the sealing keys. Only the first start creates one; if rows exist, their key must exist too.
    pub(crate) fn sealing_keys(
        self,
        data: &DataDir,
        options: &ServerOptions,
        entropy: &dyn Entropy,
    ) -> Result<SealingKeys, ServerError> {
        let files = KeyFiles::of(options)?;
        if self == Self::First && options.sealing_key_file.is_none() && files.present()?.is_none() {
            let marker = data.join(FIRST_START);
            write_private(&marker, ABOUT_FIRST_START)
                .map_err(|source| ServerError::DataDirNotWritable { path: marker, source })?;
            files.write_present(&sealing_key::generate(entropy))?;
        }
        files.keys()
    }
}

/// Removes the marker file. From now on the sealing key proves that the directory was used.
pub(crate) fn finish_first_start(data: &DataDir) -> Result<(), ServerError> {
    let marker = data.join(FIRST_START);
    let removed = match fs::remove_file(&marker) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        removed => removed.and_then(|()| File::open(data.path())?.sync_all()),
    };
    removed.map_err(|source| ServerError::DataDirNotWritable { path: marker, source })
}

/// Returns the names of files in the data directory that only a platform with rows has written.
fn platform_files(options: &ServerOptions, contents: Contents) -> Vec<String> {
    let folder = &options.data_dir;
    let mut left: Vec<String> = Vec::new();
    let mut note = |name: &str, exists: bool| {
        if exists {
            left.push(name.to_owned());
        }
    };
    for name in [REPLICA, CA_FILE, ADMIN_TOKEN, MARK] {
        note(name, folder.join(name).exists());
    }
    note(ARTIFACTS, fs::read_dir(folder.join(ARTIFACTS)).is_ok_and(|mut entries| entries.next().is_some()));
    if !folder.join(FIRST_START).exists() {
        for key in own_keys(options) {
            note(&key.file_name().unwrap_or_default().to_string_lossy(), key.exists());
        }
        // A write-ahead log without its database holds rows that SQLite would discard.
        let log = format!("{LOCAL_STORE}-wal");
        let has_log = fs::metadata(folder.join(&log)).is_ok_and(|log| log.len() > 0);
        let lacks_database = options.store_url.is_none() && matches!(contents, Contents::NoFile | Contents::EmptyFile);
        note(&log, has_log && lacks_database);
    }
    left
}

/// Returns the sealing key files in the data directory that are not configured explicitly. A configured key may belong to other replicas
/// too.
fn own_keys(options: &ServerOptions) -> Vec<PathBuf> {
    let named = KeyFiles::of(options).ok().filter(|_| options.sealing_key_file.is_some());
    let is_named = |key: &PathBuf| named.as_ref().is_some_and(|named| named.paths().contains(key));
    KeyFiles::in_folder(&options.data_dir).paths().into_iter().filter(|key| !is_named(key)).collect()
}

/// Moves all files of a platform into a new folder of the data directory. If interrupted, the next call moves the rest.
fn move_aside(folder: &Path, options: &ServerOptions, clock: &dyn Clock) -> Result<PathBuf, ServerError> {
    let into = folder.join(format!("{MOVED}{}", clock.now().to_string().replace(':', "-")));
    let moved = || {
        DirBuilder::new().mode(0o700).create(&into)?;
        let store = ["", "-wal", "-shm", "-journal"].map(|suffix| format!("{LOCAL_STORE}{suffix}"));
        let keys = own_keys(options);
        let keys = keys.iter().filter_map(|key| key.file_name());
        let others = [ARTIFACTS, FIRST_START, ADMIN_TOKEN, MARK, CA_FILE, REPLICA];
        // Files that show that there was a platform come last, so that a directory moved by half still counts as used.
        for name in store.iter().map(OsStr::new).chain(keys).chain(others.iter().map(OsStr::new)) {
            move_if_exists(&folder.join(name), &into.join(name))?;
        }
        File::open(&into)?.sync_all()?;
        File::open(folder)?.sync_all()
    };
    moved().map_err(|source| ServerError::DataDirNotWritable { path: into.clone(), source })?;
    Ok(into)
}

fn move_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

#[cfg(test)]
mod tests;
