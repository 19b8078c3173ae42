//! Simulates a node's disk as far as the agent's ledger needs one. A power loss keeps synced bytes and may tear, zero or lose unsynced ones.
//!
//! The disk also records everything that was ever appended, so that tests see it after the ledger was compacted.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::{
    Changed, Command, CommandEnd, ContentId, Durable, FileSpec, Files, Host, HostError, Inventory, Units,
};
use tokio::io::{AsyncRead, AsyncWrite};

use gpuaas_test_support::Chance;

/// Unit in which content reaches the disk: small, so that lines often cross its boundaries.
const BLOCK_BYTES: usize = 128;

#[derive(Default)]
struct File {
    content: Vec<u8>,
    /// The number of leading bytes that survive a power loss.
    synced: usize,
    /// The offsets and the previous bytes of overwrites that are not durable, oldest first.
    overwritten: Vec<(usize, Vec<u8>)>,
}

/// A disk. Clones share the same content.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    files: Arc<Mutex<BTreeMap<Utf8PathBuf, File>>>,
    appended: Arc<Mutex<Vec<u8>>>,
    is_full: Arc<AtomicBool>,
    was_full: Arc<AtomicBool>,
}

impl Disk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<Utf8PathBuf, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns everything that was ever appended to any file, except appends that failed because the disk was full. Includes lines
    /// that a power loss tore later.
    pub(crate) fn appended(&self) -> String {
        String::from_utf8_lossy(&self.appended.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Deletes all files, as reimaging the machine does.
    pub(crate) fn wipe(&self) {
        self.files().clear();
    }

    /// Makes the disk full or gives it free space again.
    pub(crate) fn fill(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
        self.was_full.fetch_or(is_full, Ordering::Relaxed);
    }

    /// Returns whether the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Returns whether the disk was ever full.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    /// Returns the error that a write fails with, if the disk is full.
    fn full_error(&self) -> Option<io::Error> {
        self.is_full.load(Ordering::Relaxed).then(|| io::ErrorKind::StorageFull.into())
    }

    /// Simulates a power loss: a random prefix of unsynced bytes survives, and some blocks in it read as zeros, because the file grew on the disk
    /// before they were written.
    pub(crate) fn lose_power(&self, chance: &mut Chance) {
        for file in self.files().values_mut() {
            for (at, old) in std::mem::take(&mut file.overwritten).into_iter().rev() {
                let blocks = old.chunks(BLOCK_BYTES).zip(file.content[at..].chunks_mut(BLOCK_BYTES));
                for (old, now) in blocks.filter(|_| chance.below(2) == 0) {
                    now[..old.len()].copy_from_slice(old);
                }
            }
            let unsynced = file.content.len() - file.synced;
            let left = usize::try_from(chance.below(unsynced as u64 + 1)).expect("a length fits");
            file.content.truncate(file.synced + left);
            let mut at = file.synced;
            while at < file.content.len() {
                let end = file.content.len().min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
                if chance.below(4) == 0 {
                    file.content[at..end].fill(0);
                }
                at = end;
            }
            file.synced = file.content.len();
        }
    }
}

/// Fails a call that the ledger never makes.
fn absent<T>(what: &str) -> Result<T, HostError> {
    Err(HostError::Init(format!("this disk has no {what}")))
}

#[async_trait]
impl Host for Disk {
    fn files(&self) -> &dyn Files {
        self
    }
    fn units(&self) -> &dyn Units {
        unreachable!("the ledger uses no units")
    }
    fn inventory(&self) -> &dyn Inventory {
        unreachable!("the ledger inspects no machine")
    }
    async fn run(&self, _command: &Command) -> Result<CommandEnd, HostError> {
        absent("programs")
    }
    async fn set_sysctl(&self, _name: &str, _value: &str) -> Result<Changed, HostError> {
        absent("kernel")
    }
    async fn load_module(&self, _name: &str) -> Result<Changed, HostError> {
        absent("kernel")
    }
}

#[async_trait]
impl Files for Disk {
    async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
        if let Some(source) = self.full_error() {
            return Err(HostError::File { action: "write", path: file.path.clone(), source });
        }
        let written = File { content: file.content.clone(), synced: file.content.len(), overwritten: Vec::new() };
        self.files().insert(file.path.clone(), written);
        Ok(Changed::Yes)
    }
    async fn read(&self, path: &Utf8Path, _bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.files().get(path).map(|file| file.content.clone()))
    }
    async fn append(&self, _path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError> {
        absent("appending without waiting")
    }
    async fn sync(&self, _path: &Utf8Path) -> Result<(), HostError> {
        absent("appending without waiting")
    }
    async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
        let fail = |source| HostError::File { action: "write", path: path.to_owned(), source };
        match (self.full_error(), self.files().get_mut(path)) {
            (_, None) => return Err(fail(io::ErrorKind::NotFound.into())),
            (Some(full), Some(file)) => {
                // The last block had space for a part of it.
                file.content.extend_from_slice(&content[..content.len() / 2]);
                return Err(fail(full));
            }
            (None, Some(file)) => file.content.extend_from_slice(&content),
        }
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&content);
        // Yield, so that a process that dies here leaves the line written but not synced.
        crate::scheduler::yield_once().await;
        if let Some(file) = self.files().get_mut(path).filter(|_| durable == Durable::OnReturn) {
            file.synced = file.content.len();
        }
        Ok(())
    }
    async fn overwrite(&self, path: &Utf8Path, at: u64, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
        let fail =
            |kind: io::ErrorKind| HostError::File { action: "write", path: path.to_owned(), source: kind.into() };
        let range = usize::try_from(at).expect("a length fits")..;
        {
            let mut files = self.files();
            let file = files.get_mut(path).ok_or_else(|| fail(io::ErrorKind::NotFound))?;
            let part = file.content.get_mut(range.clone()).and_then(|rest| rest.get_mut(..content.len()));
            let part = part.ok_or_else(|| fail(io::ErrorKind::UnexpectedEof))?;
            let old = part.to_vec();
            part.copy_from_slice(&content);
            file.overwritten.push((range.start, old));
        }
        // Yield, so that a power loss here leaves only some blocks written.
        crate::scheduler::yield_once().await;
        if let Some(file) = self.files().get_mut(path).filter(|_| durable == Durable::OnReturn) {
            file.overwritten.clear();
        }
        Ok(())
    }
    async fn remove(&self, _path: &Utf8Path) -> Result<Changed, HostError> {
        absent("removal")
    }
    async fn remove_empty_folder(&self, _path: &Utf8Path) -> Result<Changed, HostError> {
        absent("folders")
    }
    async fn make_folder(&self, _path: &Utf8Path, _mode: u32) -> Result<Changed, HostError> {
        absent("folders")
    }
    async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
        Ok(self.files().contains_key(path))
    }
    async fn list(&self, _path: &Utf8Path) -> Result<Vec<String>, HostError> {
        absent("folders")
    }
    async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
        Ok(self.files().get(path).map(|file| file.content.len() as u64))
    }
    async fn open(&self, _path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError> {
        absent("reader")
    }
    async fn rename(&self, _from: &Utf8Path, _to: &Utf8Path) -> Result<(), HostError> {
        absent("renaming")
    }
    async fn read_verified(&self, _path: &Utf8Path, _id: ContentId) -> Result<Vec<u8>, HostError> {
        absent("verified files")
    }
    async fn has_content(&self, _path: &Utf8Path, _id: ContentId) -> Result<bool, HostError> {
        absent("verified files")
    }
    async fn copy_verified(
        &self,
        _from: &Utf8Path,
        _to: &Utf8Path,
        _mode: u32,
        _id: ContentId,
    ) -> Result<Changed, HostError> {
        absent("verified files")
    }
}
