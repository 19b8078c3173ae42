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
    folder::Folder,
    release::{self, ImportedRelease, STAND_IN, STAND_IN_BYTES_MAX, Wanted},
    store::{ARTIFACT_BYTES_MAX, ArtifactStore},
    sums::SUMS_BYTES_MAX,
    verification::{SIGNATURE_BYTES_MAX, Verification},
};

/// Most tries in a row that bring no byte, before a file is given up.
pub const DOWNLOAD_TRIES_MAX: u32 = 4;
/// The pause before a try that follows one without a byte; grows with each.
const PAUSE: Duration = Duration::from_millis(500);

/// Imports the release at `base`, for example `https://host/releases/download/v1.36.3%2Brke2r1`.
///
/// `scratch` is a folder of this release alone, on a disk with room for it; it is emptied after a success.
pub(crate) async fn import_release_url(
    store: &ArtifactStore,
    fetch: &dyn Fetch,
    base: &str,
    wanted: &Wanted<'_>,
    verification: &Verification,
    scratch: &Path,
) -> Result<ImportedRelease, ArtifactError> {
    tokio::fs::create_dir_all(scratch).await.map_err(|error| ArtifactError::disk(scratch, error))?;
    let download = Download { fetch, base: base.trim_end_matches('/'), scratch };
    // The small ones each time: they say what the large ones must be.
    download.small(wanted.sums, SUMS_BYTES_MAX, true).await?;
    download.small(&release::signature_of(wanted.sums), SIGNATURE_BYTES_MAX, false).await?;
    download.small(STAND_IN, STAND_IN_BYTES_MAX, false).await?;
    let folder = || Folder::own(scratch).map_err(|error| ArtifactError::disk(scratch, error));
    // Nothing large is fetched for a sum file that nothing verifies.
    release::verified_sums(&folder()?, wanted.sums, &wanted.proof, verification)?;
    for name in wanted.files {
        download.file(name, ARTIFACT_BYTES_MAX).await?;
    }
    match release::import_release(store, folder()?, wanted, verification).await {
        Ok(mut imported) => {
            tokio::fs::remove_dir_all(scratch).await.map_err(|error| ArtifactError::disk(scratch, error))?;
            imported.version = imported.version.or_else(|| version_in(base));
            Ok(imported)
        }
        Err(error) => {
            for name in wanted.files {
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
    /// Fetches a short file, from its beginning; one that is not `needed` may be absent.
    async fn small(&self, name: &str, limit: u64, needed: bool) -> Result<(), ArtifactError> {
        self.forget(name).await?;
        match self.file(name, limit).await {
            Err(ArtifactError::Missing { .. }) if !needed => Ok(()),
            fetched => fetched,
        }
    }

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
            let failed = match self.fetch.get(&url, have).await {
                Ok(fetched) if fetched.complete_at(have) => return Ok(()),
                Ok(fetched) => {
                    if fetched.offset != have {
                        file.set_len(fetched.offset.min(have)).await.map_err(disk)?;
                        have = fetched.offset.min(have);
                    }
                    match self.append(name, fetched, &mut file, &mut have, limit).await? {
                        None => return Ok(()),
                        Some(why) => FetchFailure::Broken(why),
                    }
                }
                Err(FetchFailure::Absent) => {
                    drop(file);
                    self.forget(name).await?;
                    return Err(ArtifactError::Missing { name: name.to_owned() });
                }
                Err(refused @ FetchFailure::Refused(_)) => return Err(given_up(name, &refused)),
                // A server that may not be reached takes as long to be given up as one that does not answer.
                Err(failed @ (FetchFailure::Broken(_) | FetchFailure::Unreached)) => failed,
            };
            fruitless = if have > before { 0 } else { fruitless + 1 };
            if fruitless >= DOWNLOAD_TRIES_MAX {
                return Err(given_up(name, &failed));
            }
            tracing::info!(name, have, why = %failed, "a download broke off and is continued");
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

fn given_up(name: &str, why: &FetchFailure) -> ArtifactError {
    match why {
        FetchFailure::Unreached => ArtifactError::Unreachable,
        FetchFailure::Absent | FetchFailure::Refused(_) | FetchFailure::Broken(_) => {
            ArtifactError::Fetch { name: name.to_owned(), why: why.to_string() }
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
