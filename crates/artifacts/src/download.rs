//! Imports a release from its URL: downloads it into a folder, continues interrupted downloads, then imports the folder.
//!
//! After a failed download the folder keeps the bytes that have arrived, so that another attempt, even by another process, continues them.
//! Removed are a file that fills the disk and, if the import of the complete download fails, all its files, because a file with a wrong
//! digest would otherwise be kept for ever.

use std::{path::Path, time::Duration};

use futures::TryStreamExt as _;
use tokio::io::AsyncWriteExt as _;

use crate::{
    error::ArtifactError,
    fetch::{Fetch, FetchError, Fetched},
    folder::Folder,
    release::{self, ImportedRelease, ReleaseRequest, STAND_IN, STAND_IN_BYTES_MAX},
    store::{ARTIFACT_BYTES_MAX, ArtifactStore},
    sums::SUMS_BYTES_MAX,
    verification::{SIGNATURE_BYTES_MAX, Verification},
};

/// Number of consecutive attempts without a new byte after which a download fails.
pub const DOWNLOAD_TRIES_MAX: u32 = 4;
/// Pause after an attempt without a new byte, multiplied by the number of such attempts in a row.
const PAUSE: Duration = Duration::from_millis(500);

/// Imports the release at `base`, for example `https://host/releases/download/v1.36.3%2Brke2r1`.
///
/// `scratch` is a folder for this release only, on a disk with enough space; it is removed after a success.
pub(crate) async fn import_release_url(
    store: &ArtifactStore,
    fetch: &dyn Fetch,
    base: &str,
    wanted: &ReleaseRequest<'_>,
    verification: &Verification,
    scratch: &Path,
) -> Result<ImportedRelease, ArtifactError> {
    tokio::fs::create_dir_all(scratch).await.map_err(|error| ArtifactError::disk(scratch, error))?;
    let download = Download { fetch, base: base.trim_end_matches('/'), scratch };
    // The small files are fetched again each time, because they determine what the large ones must be.
    download.fetch_small(wanted.sums, SUMS_BYTES_MAX, true).await?;
    download.fetch_small(&release::signature_of(wanted.sums), SIGNATURE_BYTES_MAX, false).await?;
    download.fetch_small(STAND_IN, STAND_IN_BYTES_MAX, false).await?;
    let folder = || Folder::open(scratch).map_err(|error| ArtifactError::disk(scratch, error));
    // Verified before any large file is fetched.
    release::verified_sums(&folder()?, wanted.sums, &wanted.proof, verification)?;
    for name in wanted.files {
        download.fetch_file(name, ARTIFACT_BYTES_MAX).await?;
    }
    match release::import_release(store, folder()?, wanted, verification).await {
        Ok(mut imported) => {
            tokio::fs::remove_dir_all(scratch).await.map_err(|error| ArtifactError::disk(scratch, error))?;
            imported.version = imported.version.or_else(|| version_in(base));
            Ok(imported)
        }
        Err(error) => {
            for name in wanted.files {
                download.remove(name).await?;
            }
            Err(error)
        }
    }
}

struct Download<'a> {
    fetch: &'a dyn Fetch,
    base: &'a str,
    scratch: &'a Path,
}

impl Download<'_> {
    /// Fetches a short file from its beginning; a file that is not `needed` may be absent.
    async fn fetch_small(&self, name: &str, limit: u64, needed: bool) -> Result<(), ArtifactError> {
        self.remove(name).await?;
        match self.fetch_file(name, limit).await {
            Err(ArtifactError::Missing { .. }) if !needed => Ok(()),
            fetched => fetched,
        }
    }

    /// Fetches or continues a file. Removes it if the disk is full or the file too large: it occupies the space, and no attempt continues it.
    async fn fetch_file(&self, name: &str, limit: u64) -> Result<(), ArtifactError> {
        let fetched = self.fetch_or_continue(name, limit).await;
        if let Err(ArtifactError::DiskFull(_) | ArtifactError::TooLarge { .. }) = &fetched {
            self.remove(name).await?;
        }
        fetched
    }

    async fn fetch_or_continue(&self, name: &str, limit: u64) -> Result<(), ArtifactError> {
        let (url, path) = (format!("{}/{name}", self.base), self.scratch.join(name));
        let disk = |error| ArtifactError::disk(&path, error);
        let mut file = tokio::fs::OpenOptions::new().create(true).append(true).open(&path).await.map_err(disk)?;
        let mut have = file.metadata().await.map_err(disk)?.len();
        let mut failures = 0;
        loop {
            let before = have;
            let failed = match self.fetch.get(&url, have).await {
                Ok(fetched) if fetched.is_complete_at(have) => return Ok(()),
                Ok(fetched) => {
                    if fetched.offset != have {
                        file.set_len(fetched.offset.min(have)).await.map_err(disk)?;
                        have = fetched.offset.min(have);
                    }
                    match self.append(name, fetched, &mut file, &mut have, limit).await? {
                        None => return Ok(()),
                        Some(why) => FetchError::Broken(why),
                    }
                }
                Err(FetchError::Absent) => {
                    drop(file);
                    self.remove(name).await?;
                    return Err(ArtifactError::Missing { name: name.to_owned() });
                }
                Err(refused @ FetchError::Refused(_)) => return Err(download_error(name, &refused)),
                // A forbidden server is retried like one that does not answer, so that timing does not tell them apart.
                Err(failed @ (FetchError::Broken(_) | FetchError::Unreachable)) => failed,
            };
            failures = if have > before { 0 } else { failures + 1 };
            if failures >= DOWNLOAD_TRIES_MAX {
                return Err(download_error(name, &failed));
            }
            tracing::info!(name, have, why = %failed, "a download was interrupted and is continued");
            tokio::time::sleep(PAUSE * failures).await;
        }
    }

    /// Appends the body to the file. Returns `None` if the body is complete, otherwise why it broke off.
    async fn append(
        &self,
        name: &str,
        mut fetched: Fetched,
        file: &mut tokio::fs::File,
        have: &mut u64,
        limit: u64,
    ) -> Result<Option<String>, ArtifactError> {
        let failure = loop {
            match fetched.body.try_next().await {
                Ok(Some(chunk)) => {
                    *have += chunk.len() as u64;
                    if *have > limit {
                        return Err(ArtifactError::TooLarge { name: name.to_owned(), limit, unit: "bytes" });
                    }
                    file.write_all(&chunk).await.map_err(|error| ArtifactError::disk(self.scratch, error))?;
                }
                Ok(None) if fetched.total_bytes.is_some_and(|total| *have < total) => {
                    break Some("the response ended early".into());
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        file.flush().await.map_err(|error| ArtifactError::disk(self.scratch, error))?;
        Ok(failure)
    }

    async fn remove(&self, name: &str) -> Result<(), ArtifactError> {
        let path = self.scratch.join(name);
        match tokio::fs::remove_file(&path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ArtifactError::disk(&path, error)),
            _ => Ok(()),
        }
    }
}

fn download_error(name: &str, why: &FetchError) -> ArtifactError {
    match why {
        FetchError::Unreachable => ArtifactError::Unreachable,
        FetchError::Absent | FetchError::Refused(_) | FetchError::Broken(_) => {
            ArtifactError::Fetch { name: name.to_owned(), why: why.to_string() }
        }
    }
}

/// Returns the last part of the path if it looks like a version: `v1.36.3%2Brke2r1` → `v1.36.3+rke2r1`.
fn version_in(base: &str) -> Option<String> {
    let last = base.trim_end_matches('/').rsplit('/').next()?;
    let version = last.replace("%2B", "+").replace("%2b", "+");
    let digits = version.strip_prefix('v')?;
    let is_version = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_alphanumeric() || ".+-".contains(c));
    is_version.then_some(version)
}

#[cfg(test)]
mod tests;
