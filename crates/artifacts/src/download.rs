//! Importing a release from its URL: fetched into a folder, continued where it broke off, then imported like any folder.
//!
//! What was fetched stays in the folder until the import succeeds, so another try, also of another process, continues. A file
//! that turns out not to be what the sum file says is removed, so that it is not continued for ever, and so is one that fills the disk.

use std::{path::Path, time::Duration};

use futures::TryStreamExt as _;
use tokio::io::AsyncWriteExt as _;

use crate::{
    error::ArtifactError,
    fetch::{Fetch, FetchFailure, Fetched},
    release::{self, ImportedRelease, STAND_IN, STAND_IN_BYTES_MAX},
    store::{ARTIFACT_BYTES_MAX, ArtifactStore},
    sums::SUMS_BYTES_MAX,
};

/// Most tries in a row that bring no byte, before a file is given up.
pub const DOWNLOAD_TRIES_MAX: u32 = 4;
/// The pause before a try that follows one without a byte; grows with each.
const PAUSE: Duration = Duration::from_millis(500);

/// Imports `wanted` files of the release at `base`, for example `https://host/releases/download/v1.36.3%2Brke2r1`.
///
/// `scratch` is a folder of this release alone, on a disk with room for it; it is emptied after a success.
pub async fn import_release_url(
    store: &ArtifactStore,
    fetch: &dyn Fetch,
    base: &str,
    wanted: &[String],
    sums: &str,
    scratch: &Path,
) -> Result<ImportedRelease, ArtifactError> {
    tokio::fs::create_dir_all(scratch).await.map_err(|error| ArtifactError::disk(scratch, error))?;
    let download = Download { fetch, base: base.trim_end_matches('/'), scratch };
    // The small ones anew each time: they say what the large ones must be.
    for (name, limit) in [(sums, SUMS_BYTES_MAX), (STAND_IN, STAND_IN_BYTES_MAX)] {
        download.forget(name).await?;
        match download.file(name, limit).await {
            Err(ArtifactError::Missing { .. }) if name == STAND_IN => {}
            fetched => fetched?,
        }
    }
    for name in wanted {
        download.file(name, ARTIFACT_BYTES_MAX).await?;
    }
    match release::import_release(store, scratch, wanted, sums).await {
        Ok(mut imported) => {
            tokio::fs::remove_dir_all(scratch).await.map_err(|error| ArtifactError::disk(scratch, error))?;
            imported.version = imported.version.or_else(|| version_in(base));
            Ok(imported)
        }
        Err(error) => {
            for name in wanted {
                download.forget(name).await?;
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
    /// Fetches a file. What a full disk cut off is removed: kept, it would keep the disk full.
    async fn file(&self, name: &str, limit: u64) -> Result<(), ArtifactError> {
        let fetched = self.fetched(name, limit).await;
        if let Err(ArtifactError::NoRoom(_)) = &fetched {
            self.forget(name).await?;
        }
        fetched
    }

    async fn fetched(&self, name: &str, limit: u64) -> Result<(), ArtifactError> {
        let (url, path) = (format!("{}/{name}", self.base), self.scratch.join(name));
        let disk = |error| ArtifactError::disk(&path, error);
        let mut file = tokio::fs::OpenOptions::new().create(true).append(true).open(&path).await.map_err(disk)?;
        let mut have = file.metadata().await.map_err(disk)?.len();
        let mut fruitless = 0;
        loop {
            let before = have;
            let why = match self.fetch.get(&url, have).await {
                Ok(fetched) if fetched.complete_at(have) => return Ok(()),
                Ok(fetched) => {
                    if fetched.offset != have {
                        file.set_len(fetched.offset.min(have)).await.map_err(disk)?;
                        have = fetched.offset.min(have);
                    }
                    match self.append(name, fetched, &mut file, &mut have, limit).await? {
                        None => return Ok(()),
                        Some(why) => why,
                    }
                }
                Err(FetchFailure::Absent) => {
                    drop(file);
                    self.forget(name).await?;
                    return Err(ArtifactError::Missing { name: name.to_owned() });
                }
                Err(failure @ FetchFailure::Refused(_)) => {
                    return Err(ArtifactError::Fetch { name: name.to_owned(), why: failure.to_string() });
                }
                Err(failure @ FetchFailure::Broken(_)) => failure.to_string(),
            };
            fruitless = if have > before { 0 } else { fruitless + 1 };
            if fruitless >= DOWNLOAD_TRIES_MAX {
                return Err(ArtifactError::Fetch { name: name.to_owned(), why });
            }
            tracing::info!(name, have, why, "a download broke off and is continued");
            tokio::time::sleep(PAUSE * fruitless).await;
        }
    }

    /// Writes what comes. `None` when it came to its end, otherwise why it broke off.
    async fn append(
        &self,
        name: &str,
        mut fetched: Fetched,
        file: &mut tokio::fs::File,
        have: &mut u64,
        limit: u64,
    ) -> Result<Option<String>, ArtifactError> {
        let broke = loop {
            match fetched.body.try_next().await {
                Ok(Some(chunk)) => {
                    *have += chunk.len() as u64;
                    if *have > limit {
                        return Err(ArtifactError::TooLarge { name: name.to_owned(), limit, unit: "bytes" });
                    }
                    file.write_all(&chunk).await.map_err(|error| ArtifactError::disk(self.scratch, error))?;
                }
                Ok(None) if fetched.total_bytes.is_some_and(|total| *have < total) => {
                    break Some("it ended early".into());
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        file.flush().await.map_err(|error| ArtifactError::disk(self.scratch, error))?;
        Ok(broke)
    }

    async fn forget(&self, name: &str) -> Result<(), ArtifactError> {
        let path = self.scratch.join(name);
        match tokio::fs::remove_file(&path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ArtifactError::disk(&path, error)),
            _ => Ok(()),
        }
    }
}

/// The last part of the path, where it looks like a version: `v1.36.3%2Brke2r1` → `v1.36.3+rke2r1`.
fn version_in(base: &str) -> Option<String> {
    let last = base.trim_end_matches('/').rsplit('/').next()?;
    let version = last.replace("%2B", "+").replace("%2b", "+");
    let digits = version.strip_prefix('v')?;
    let sound = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_alphanumeric() || ".+-".contains(c));
    sound.then_some(version)
}

#[cfg(test)]
#[path = "download_tests.rs"]
mod tests;
