//! The content-addressed store.

use std::{
    io::{self, Seek as _, SeekFrom},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem,
    path::Path as Key,
};
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;

use crate::{
    digest::{self, Hasher},
    error::ArtifactError,
};

/// Size of one part of an upload, in bytes.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Largest artifact, in bytes (16 GiB). RKE2's largest images archive has about 2 GB.
pub const ARTIFACT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;
/// Separator that the folder backend puts between an object's name and the number of an unfinished upload.
const UNFINISHED: char = '#';

/// An unfinished upload without a write for this long counts as abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// Number of processes that write to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Only this process.
    One,
    /// This process and others, concurrently.
    Several,
}

/// Store of artifacts, addressed by their SHA-256. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    objects: Arc<dyn ObjectStore>,
}

impl ArtifactStore {
    /// Opens the store in a folder and creates the folder if needed. Removes unfinished uploads of earlier processes: all of them with
    /// [`Writers::One`], only those without a write for 24 h with [`Writers::Several`].
    pub fn open(folder: &Path, writers: Writers) -> Result<Self, ArtifactError> {
        std::fs::create_dir_all(folder).map_err(|error| ArtifactError::disk(folder, error))?;
        for entry in std::fs::read_dir(folder).map_err(|error| ArtifactError::disk(folder, error))? {
            let entry = entry.map_err(|error| ArtifactError::disk(folder, error))?;
            let unfinished = entry.file_name().to_string_lossy().contains(UNFINISHED);
            if unfinished && (writers == Writers::One || is_abandoned(&entry)) {
                std::fs::remove_file(entry.path()).map_err(|error| ArtifactError::disk(&entry.path(), error))?;
            }
        }
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| ArtifactError::disk(folder, error))?;
        // A row may name an artifact as soon as `put_verified` returns, so by then it must survive a power cut.
        Ok(Self { objects: Arc::new(objects.with_fsync(true)) })
    }

    /// Opens the store for reading only: creates and removes nothing. The folder must exist.
    pub fn open_read_only(folder: &Path) -> Result<Self, ArtifactError> {
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| ArtifactError::disk(folder, error))?;
        Ok(Self { objects: Arc::new(objects) })
    }

    /// Stores `bytes` under `sha256` if they have that digest; returns their length.
    ///
    /// If the artifact is already stored and intact, `bytes` is not read; a corrupted one is replaced. Dropping the future leaves nothing
    /// visible. `name` is used only in errors.
    pub async fn put_verified(
        &self,
        name: &str,
        sha256: &str,
        bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    ) -> Result<u64, ArtifactError> {
        if let Some(size) = self.size(sha256).await?
            && self.verify(sha256).await.is_ok()
        {
            return Ok(size);
        }
        // An upload becomes visible only when it is completed.
        let mut upload = self.objects.put_multipart(&key(sha256)?).await.map_err(backend_error)?;
        match fill(name, sha256, bytes, upload.as_mut()).await {
            Ok(length) => upload.complete().await.map(|_| length).map_err(backend_error),
            Err(error) => {
                // An upload that cannot be aborted stays invisible and is removed at a later start.
                if let Err(abort) = upload.abort().await {
                    tracing::warn!(%abort, name, "an unfinished artifact could not be removed");
                }
                Err(error)
            }
        }
    }

    /// Returns an artifact's whole length and its bytes from `offset` on; `None` if it is not stored. An offset beyond the end yields no
    /// bytes.
    pub async fn get(
        &self,
        sha256: &str,
        offset: u64,
    ) -> Result<Option<(u64, BoxStream<'static, io::Result<Bytes>>)>, ArtifactError> {
        let Some(size) = self.size(sha256).await? else { return Ok(None) };
        if offset >= size {
            return Ok(Some((size, futures::stream::empty().boxed())));
        }
        let options = GetOptions { range: (offset > 0).then_some(GetRange::Offset(offset)), ..GetOptions::default() };
        match self.objects.get_opts(&key(sha256)?, options).await {
            Ok(found) => Ok(Some((found.meta.size, read(found)?))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(backend_error(error)),
        }
    }

    /// Removes an artifact; does nothing if it is not stored. The caller makes sure that nothing refers to it.
    pub async fn remove(&self, sha256: &str) -> Result<(), ArtifactError> {
        match self.objects.delete(&key(sha256)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(backend_error(error)),
        }
    }

    /// Returns an artifact's length in bytes; `None` if it is not stored.
    pub async fn size(&self, sha256: &str) -> Result<Option<u64>, ArtifactError> {
        match self.objects.head(&key(sha256)?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(backend_error(error)),
        }
    }

    /// Returns whether an artifact is stored, without checking its bytes; [`ArtifactStore::verify`] checks them.
    pub async fn has(&self, sha256: &str) -> Result<bool, ArtifactError> {
        Ok(self.size(sha256).await?.is_some())
    }

    /// Reads a whole artifact, checks its digest and returns its length. Fails with [`ArtifactError::DigestMismatch`] if it is corrupted,
    /// with [`ArtifactError::Missing`] if it is not stored.
    pub async fn verify(&self, sha256: &str) -> Result<u64, ArtifactError> {
        let missing = || ArtifactError::Missing { name: sha256.to_owned() };
        let (_, mut bytes) = self.get(sha256, 0).await?.ok_or_else(missing)?;
        let (mut hasher, mut length) = (Hasher::new(), 0_u64);
        while let Some(chunk) = bytes.try_next().await.map_err(|error| ArtifactError::Store(error.to_string()))? {
            hasher.update(&chunk);
            length += chunk.len() as u64;
        }
        let found = hasher.finish();
        if found == sha256 {
            return Ok(length);
        }
        Err(ArtifactError::DigestMismatch {
            name: "the stored artifact".to_owned(),
            found,
            expected: sha256.to_owned(),
        })
    }
}

/// Returns whether a file has had no write for [`ABANDONED_AFTER`]; false if its time cannot be read.
fn is_abandoned(entry: &std::fs::DirEntry) -> bool {
    let written = entry.metadata().and_then(|metadata| metadata.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > ABANDONED_AFTER))
}

/// Uploads all of `bytes`, checks their digest and returns their length; the caller completes or aborts the upload.
async fn fill(
    name: &str,
    sha256: &str,
    mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    upload: &mut dyn object_store::MultipartUpload,
) -> Result<u64, ArtifactError> {
    let (mut hasher, mut length, mut part) = (Hasher::new(), 0_u64, Vec::new());
    while let Some(chunk) = bytes.try_next().await.map_err(|error| ArtifactError::Store(format!("{name}: {error}")))? {
        hasher.update(&chunk);
        length += chunk.len() as u64;
        if length > ARTIFACT_BYTES_MAX {
            return Err(ArtifactError::TooLarge { name: name.to_owned(), limit: ARTIFACT_BYTES_MAX, unit: "bytes" });
        }
        part.extend_from_slice(&chunk);
        if part.len() >= PART_BYTES {
            upload.put_part(PutPayload::from(std::mem::take(&mut part))).await.map_err(backend_error)?;
        }
    }
    let found = hasher.finish();
    if found != sha256 {
        return Err(ArtifactError::DigestMismatch { name: name.to_owned(), found, expected: sha256.to_owned() });
    }
    upload.put_part(PutPayload::from(part)).await.map_err(backend_error)?;
    Ok(length)
}

/// Reads in larger chunks than the backend's own 8 KiB, because each chunk costs a thread switch.
fn read(found: GetResult) -> Result<BoxStream<'static, io::Result<Bytes>>, ArtifactError> {
    let (start, length) = (found.range.start, found.range.end - found.range.start);
    match found.payload {
        GetResultPayload::File(mut file, path) => {
            file.seek(SeekFrom::Start(start)).map_err(|error| ArtifactError::disk(&path, error))?;
            let file = tokio::fs::File::from_std(file).take(length);
            Ok(ReaderStream::with_capacity(file, CHUNK_BYTES).boxed())
        }
        GetResultPayload::Stream(stream) => Ok(stream.map_err(io::Error::other).boxed()),
    }
}

fn key(sha256: &str) -> Result<Key, ArtifactError> {
    if digest::is_digest(sha256) { Ok(Key::from(sha256)) } else { Err(ArtifactError::InvalidDigest(sha256.to_owned())) }
}

#[allow(clippy::needless_pass_by_value)] // Used as a function of `map_err`.
fn backend_error(error: object_store::Error) -> ArtifactError {
    ArtifactError::backend(error)
}

#[cfg(test)]
mod tests;
