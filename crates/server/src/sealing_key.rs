//! Files of the present and the next sealing key, and the part of a key rotation that happens on this machine.
//!
//! Guarantees: a file appears complete and durable or not at all. No key that may still be needed is overwritten: the next key replaces the
//! present one only after no row is encrypted with the present one.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gpuaas_engine::Engine;
use gpuaas_model::Entropy;
use gpuaas_store::Change;
use gpuaas_trust::{SealingKey, SealingKeys};
use serde::Serialize;
use tokio::sync::{Notify, broadcast::error::RecvError};
use zeroize::Zeroizing;

use crate::{error::ServerError, options::ServerOptions, ports};

/// Bytes of a sealing key.
const KEY_BYTES: usize = 32;
/// File name of the present key in the data directory.
const PRESENT: &str = "sealing.key";
/// File name of the next key in the data directory.
const NEXT: &str = "sealing-next.key";
/// Suffix of the next key's file name if the present key's file is configured.
const NEXT_SUFFIX: &str = ".next";
/// The previous key stays usable for this long after the last row that needed it changed: a transaction that encrypted a value with it may
/// still wait for the write lock, for at most 30 s.
const DROP_PREVIOUS_AFTER: Duration = Duration::from_secs(60);
/// Retry interval for replacing the key file, which also covers lost hints.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Paths of a process's sealing keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyFiles {
    present: PathBuf,
    next: PathBuf,
}

/// The next sealing key in its file on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextSealingKey {
    /// Public id of the key.
    pub id: String,
    /// Path of its file.
    pub file: PathBuf,
}

impl KeyFiles {
    /// Returns the configured file with the next key next to it, otherwise the files in the data directory. A shared store requires a
    /// configured file, because each replica would otherwise make its own key.
    pub(crate) fn of(options: &ServerOptions) -> Result<Self, ServerError> {
        match &options.sealing_key_file {
            Some(named) => {
                let mut next = named.clone().into_os_string();
                next.push(NEXT_SUFFIX);
                Ok(Self { present: named.clone(), next: next.into() })
            }
            None if options.store_url.is_some() => Err(ServerError::SealingKeyRequired),
            None => Ok(Self::in_folder(&options.data_dir)),
        }
    }

    /// Returns the default files of a data directory.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { present: folder.join(PRESENT), next: folder.join(NEXT) }
    }

    /// Returns the paths of the present and the next key.
    pub(crate) fn paths(&self) -> [PathBuf; 2] {
        [self.present.clone(), self.next.clone()]
    }

    /// Reads the present key; `None` if its file is missing.
    pub(crate) fn present(&self) -> Result<Option<Zeroizing<Vec<u8>>>, ServerError> {
        read(&self.present)
    }

    /// Reads the next key; `None` if its file is missing.
    pub(crate) fn next(&self) -> Result<Option<Zeroizing<Vec<u8>>>, ServerError> {
        read(&self.next)
    }

    /// Reads both keys. The present one must exist.
    pub(crate) fn keys(&self) -> Result<SealingKeys, ServerError> {
        let missing = || ServerError::SealingKeyMissing { path: self.present.clone() };
        // The next key first: if it replaces the present one in between, it is read twice instead of not at all.
        let next = self.next()?;
        let keys = SealingKeys::from(self.parse(&self.present()?.ok_or_else(missing)?)?);
        if let Some(next) = next {
            keys.set_next(self.parse(&next)?);
        }
        Ok(keys)
    }

    /// Writes the present key. Fails if its file exists.
    pub(crate) fn write_present(&self, key: &[u8]) -> Result<(), ServerError> {
        write_new(&self.present, key, None)
    }

    /// Writes the next key. Succeeds if the file already holds the same key, and fails if it holds another.
    pub(crate) fn write_next(&self, key: &[u8]) -> Result<(), ServerError> {
        match self.next()? {
            Some(kept) if *kept == *key => Ok(()),
            Some(_) => Err(ServerError::NextSealingKeyExists { path: self.next.clone() }),
            // Root may run this while the control plane runs as another user.
            None => write_new(&self.next, key, fs::metadata(&self.present).ok().map(|of| (of.uid(), of.gid()))),
        }
    }

    /// Replaces the present key's file by the next one if the next key has that id. Returns whether the present file holds that key now.
    /// Another replica on this machine may use the same files and replace them first.
    pub(crate) fn promote(&self, id: &str) -> Result<bool, ServerError> {
        let is = |key: Option<Zeroizing<Vec<u8>>>| {
            key.and_then(|key| SealingKey::new(&key).ok()).is_some_and(|key| key.id() == id)
        };
        if !is(self.present()?) && is(self.next()?) {
            match fs::rename(&self.next, &self.present) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                renamed => {
                    renamed.and_then(|()| sync_folder(&self.present)).map_err(|error| key_error(&self.next, error))?
                }
            }
        }
        Ok(is(self.present()?))
    }

    fn parse(&self, key: &[u8]) -> Result<SealingKey, ServerError> {
        SealingKey::new(key).map_err(|error| key_error(&self.present, std::io::Error::other(error)))
    }
}

/// Writes the next sealing key, a fresh one or the one in the file `from`, next to the present one. A running control plane loads it on
/// reload. Changes nothing else.
pub fn next_sealing_key(options: &ServerOptions, from: Option<&Path>) -> Result<NextSealingKey, ServerError> {
    let files = KeyFiles::of(options)?;
    let present = files.keys()?.active();
    let key = match from {
        Some(from) => read(from)?.ok_or_else(|| key_error(from, ErrorKind::NotFound.into()))?,
        None => generate(&*ports::system().entropy),
    };
    let id = files.parse(&key)?.id().to_owned();
    if id == present {
        let same = std::io::Error::new(ErrorKind::AlreadyExists, "it contains the key that is in use");
        return Err(key_error(from.unwrap_or(&files.next), same));
    }
    files.write_next(&key)?;
    Ok(NextSealingKey { id, file: files.next })
}

/// Loads the next key whenever `reload` is notified. Once no row needs the previous key, replaces the present key by the next one on disk
/// and then in memory.
pub(crate) async fn maintain(files: KeyFiles, engine: Arc<Engine>, reload: Arc<Notify>) {
    let mut changes = engine.store().changes();
    loop {
        while changes.try_recv().is_ok() {}
        if let Err(error) = finish_rotation(&files, &engine).await {
            tracing::warn!(%error, "the sealing key in use could not be determined");
        }
        let changed = async {
            loop {
                match changes.recv().await {
                    Ok(Change::Sealing | Change::Missed) | Err(RecvError::Lagged(_)) => return,
                    Ok(_) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            () = reload.notified() => load_next(&files, &engine),
            () = changed => {}
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
    }
}

fn load_next(files: &KeyFiles, engine: &Engine) {
    let taken = files.next().and_then(|key| key.map(|key| files.parse(&key)).transpose());
    match taken {
        Ok(Some(key)) => {
            let id = key.id().to_owned();
            if engine.keys().sealing().set_next(key) {
                tracing::info!(key = id, "the next sealing key was loaded");
                engine.sealing_keys_changed(false);
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "the next sealing key could not be loaded"),
    }
}

/// Finishes a completed rotation on this machine: replaces the key file, then forgets the previous key.
async fn finish_rotation(files: &KeyFiles, engine: &Arc<Engine>) -> Result<(), gpuaas_store::StoreError> {
    let sealing = engine.store().read().await?.sealing().await?;
    let Some(current) = sealing.filter(|sealing| sealing.previous.is_none()).map(|sealing| sealing.current) else {
        return Ok(());
    };
    let keys = engine.keys().sealing();
    if !keys.activate(&current) {
        return Ok(());
    }
    let is_replaced = files.promote(&current).unwrap_or_else(|error| {
        let (present, next) = (files.present.display(), files.next.display());
        tracing::error!(%error, "the sealing key {current} is in use, but its file could not be moved; run: mv {next} {present}");
        false
    });
    engine.sealing_keys_changed(!is_replaced);
    if is_replaced && keys.has_previous() {
        let engine = engine.clone();
        tokio::spawn(async move {
            tokio::time::sleep(DROP_PREVIOUS_AFTER).await;
            let sealing = engine.keys().sealing();
            // Unless another rotation has followed.
            if sealing.active() == current {
                sealing.drop_previous();
            }
        });
    }
    Ok(())
}

/// Returns a new random key.
pub(crate) fn generate(entropy: &dyn Entropy) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; KEY_BYTES]);
    entropy.fill(&mut key);
    key
}

fn key_error(path: &Path, source: std::io::Error) -> ServerError {
    ServerError::Key { path: path.to_owned(), source }
}

/// Reads a key file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, ServerError> {
    let mut key = Zeroizing::new(Vec::new());
    match File::open(path) {
        Ok(file) => {
            file.take(KEY_BYTES as u64 + 1).read_to_end(&mut key).map_err(|source| key_error(path, source))?;
            if key.len() == KEY_BYTES {
                return Ok(Some(key));
            }
            let wrong = std::io::Error::new(ErrorKind::InvalidData, "it does not contain exactly 32 bytes");
            Err(key_error(path, wrong))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(key_error(path, error)),
    }
}

/// Writes a key of mode 0600, for `owner` if given and running as root. Fails if the file exists.
fn write_new(path: &Path, key: &[u8], owner: Option<(u32, u32)>) -> Result<(), ServerError> {
    let failed = |source| key_error(path, source);
    if key.len() != KEY_BYTES {
        return Err(failed(std::io::Error::new(ErrorKind::InvalidData, "a sealing key has 32 bytes")));
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    let draft = PathBuf::from(draft);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let written = || {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
        if let Some((user, group)) = owner
            && rustix::process::geteuid().is_root()
        {
            fchown(&file, Some(user), Some(group))?;
        }
        file.write_all(key)?;
        file.sync_all()?;
        // Unlike a rename, a hard link never replaces a file.
        fs::hard_link(&draft, path)?;
        fs::remove_file(&draft)?;
        sync_folder(path)
    };
    written().map_err(failed)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    let path = std::path::absolute(path)?;
    let folder = path.parent().ok_or_else(|| std::io::Error::new(ErrorKind::InvalidInput, "the path has no folder"))?;
    File::open(folder)?.sync_all()
}

/// Checks that a required sealing key exists and that existing keys are usable. Changes nothing.
pub(crate) fn check_key(options: &ServerOptions) -> Result<(), ServerError> {
    let files = KeyFiles::of(options)?;
    if files.present()?.is_some() || options.sealing_key_file.is_some() { files.keys().map(drop) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn options(folder: &Path) -> ServerOptions {
        ServerOptions::local(folder.to_owned())
    }

    #[test]
    fn next_key_is_private_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let files = KeyFiles::in_folder(folder.path());
        assert!(next_sealing_key(&options(folder.path()), None).is_err(), "there is no present key");
        files.write_present(&[1; 32]).unwrap();
        let made = next_sealing_key(&options(folder.path()), None).unwrap();
        assert_eq!(made.file, folder.path().join("sealing-next.key"));
        assert_eq!(made.file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let kept = fs::read(&made.file).unwrap();
        let again = next_sealing_key(&options(folder.path()), None).unwrap_err();
        assert!(matches!(again, ServerError::NextSealingKeyExists { .. }), "{again}");
        assert_eq!(fs::read(&made.file).unwrap(), kept);
        fs::write(folder.path().join("copy"), &kept).unwrap();
        assert_eq!(next_sealing_key(&options(folder.path()), Some(&folder.path().join("copy"))).unwrap(), made);
        fs::remove_file(&made.file).unwrap();
        let same = next_sealing_key(&options(folder.path()), Some(&folder.path().join("sealing.key")));
        assert!(same.is_err() && !made.file.exists(), "the key in use is no next key");
    }

    #[test]
    fn next_key_lies_next_to_a_configured_key() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("a.key");
        fs::write(&named, [1; 32]).unwrap();
        let options = ServerOptions { sealing_key_file: Some(named), ..options(&folder.path().join("data")) };
        let made = next_sealing_key(&options, None).unwrap();
        assert_eq!(made.file, folder.path().join("a.key.next"));
        assert_eq!(KeyFiles::of(&options).unwrap().keys().unwrap().next(), Some(made.id));
    }

    #[test]
    fn next_key_replaces_the_present_one_once_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let files = KeyFiles::in_folder(folder.path());
        files.write_present(&[1; 32]).unwrap();
        files.write_next(&[2; 32]).unwrap();
        let (old, new) = (SealingKey::new(&[1; 32]).unwrap(), SealingKey::new(&[2; 32]).unwrap());
        assert!(!files.promote("another").unwrap());
        assert!(files.promote(old.id()).unwrap(), "it is the present one");
        assert!(files.next().unwrap().is_some());
        for _ in 0..2 {
            assert!(files.promote(new.id()).unwrap());
            assert_eq!(files.present().unwrap().unwrap().as_slice(), [2; 32]);
            assert!(files.next().unwrap().is_none());
        }
    }
}
