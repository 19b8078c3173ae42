//! Importing a release from a folder: every needed file listed in the sum file, there, whole, with its digest, and harmless.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tokio_util::io::ReaderStream;

use crate::{
    archive::{self, Packing},
    digest,
    error::ArtifactError,
    store::{ARTIFACT_BYTES_MAX, ArtifactStore},
    sums::{SUMS_BYTES_MAX, Sums},
};

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// Most files of one release.
const FILES_MAX: usize = 256;
/// The file by which a release says that it is a stand-in.
pub(crate) const STAND_IN: &str = "STAND-IN";
/// Longest text of that file that is read.
pub(crate) const STAND_IN_BYTES_MAX: u64 = 4096;

/// A file that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedFile {
    /// The release's own name for it.
    pub name: String,
    /// Its digest.
    pub sha256: String,
    /// Its length.
    pub size_bytes: u64,
}

/// A release that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedRelease {
    /// Its files.
    pub files: Vec<ImportedFile>,
    /// Its version, where the release tells it: a stand-in in its marker, a release URL in its path.
    pub version: Option<String>,
    /// Whether it says of itself that it is a stand-in.
    pub stand_in: bool,
}

/// Imports `wanted` files of the release in `folder`, verified against its sum file `sums`.
///
/// All files are looked through before the first one is taken, so a refused release leaves nothing visible. Each is verified
/// once more while it is taken: a folder that changes meanwhile is noticed.
pub async fn import_release(
    store: &ArtifactStore,
    folder: &Path,
    wanted: &[String],
    sums: &str,
) -> Result<ImportedRelease, ArtifactError> {
    let checking = Checking { folder: folder.to_owned(), wanted: wanted.to_vec(), sums: sums.to_owned() };
    let checked = tokio::task::spawn_blocking(move || checking.run());
    let mut release = checked.await.map_err(|error| ArtifactError::Store(error.to_string()))??;
    for file in &mut release.files {
        let opened = tokio::fs::File::open(folder.join(&file.name)).await;
        let opened = opened.map_err(|_| ArtifactError::Missing { name: file.name.clone() })?;
        let bytes = ReaderStream::with_capacity(opened, CHUNK_BYTES);
        file.size_bytes = store.put_verified(&file.name, &file.sha256, bytes).await?;
    }
    Ok(release)
}

/// The first pass, which takes nothing. Blocks.
struct Checking {
    folder: PathBuf,
    wanted: Vec<String>,
    sums: String,
}

impl Checking {
    fn run(&self) -> Result<ImportedRelease, ArtifactError> {
        if self.wanted.len() > FILES_MAX {
            return Err(ArtifactError::TooLarge { name: "the release".into(), limit: FILES_MAX as u64, unit: "files" });
        }
        let text = self.read(&self.sums, SUMS_BYTES_MAX)?;
        let sums = Sums::parse(&self.sums, &text);
        // What is cheap to see is seen first: a gigabyte is not hashed to say that another file is missing.
        let mut files = Vec::with_capacity(self.wanted.len());
        for name in &self.wanted {
            let sha256 = sums.digest(name)?.to_owned();
            let size_bytes = self.size(name)?;
            files.push(ImportedFile { name: name.clone(), sha256, size_bytes });
        }
        for file in &files {
            self.look_through(file)?;
        }
        let marker = self.marker()?;
        let stand_in = marker.is_some();
        Ok(ImportedRelease { files, version: marker.and_then(|marker| marker.version), stand_in })
    }

    fn look_through(&self, file: &ImportedFile) -> Result<(), ArtifactError> {
        let (name, path) = (&file.name, self.folder.join(&file.name));
        let (found, length) = digest::of_file(&path).map_err(|error| unreadable(name, &error))?;
        if found == file.sha256 {
            return archive::look_through(name, &path);
        }
        // Bytes that nobody vouches for are unpacked, with bounds, only to say what is wrong: cut off, or other ones.
        if length == 0 {
            return Err(ArtifactError::Truncated { name: name.clone(), why: "it is empty".into() });
        }
        if matches!(Packing::of(name), Packing::TarGzip | Packing::TarZstd)
            && let Err(early @ ArtifactError::Truncated { .. }) = archive::look_through(name, &path)
        {
            return Err(early);
        }
        Err(ArtifactError::DigestMismatch { name: name.clone(), found, expected: file.sha256.clone() })
    }

    /// The length of a regular file directly in the folder. Others (a pipe, say) would be waited for without end.
    fn size(&self, name: &str) -> Result<u64, ArtifactError> {
        let missing = || ArtifactError::Missing { name: name.to_owned() };
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(missing());
        }
        let meta = std::fs::metadata(self.folder.join(name)).map_err(|_| missing())?;
        if !meta.is_file() {
            return Err(missing());
        }
        if meta.len() > ARTIFACT_BYTES_MAX {
            return Err(ArtifactError::TooLarge { name: name.to_owned(), limit: ARTIFACT_BYTES_MAX, unit: "bytes" });
        }
        Ok(meta.len())
    }

    fn read(&self, name: &str, limit: u64) -> Result<String, ArtifactError> {
        if self.size(name)? > limit {
            return Err(ArtifactError::TooLarge { name: name.to_owned(), limit, unit: "bytes" });
        }
        let path = self.folder.join(name);
        let read = || -> io::Result<String> {
            let mut text = Vec::new();
            std::fs::File::open(&path)?.take(limit).read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        read().map_err(|error| unreadable(name, &error))
    }

    /// `None` without a marker; a marker that says nothing is one.
    fn marker(&self) -> Result<Option<Marker>, ArtifactError> {
        match self.read(STAND_IN, STAND_IN_BYTES_MAX) {
            Ok(text) => Ok(Some(serde_json::from_str(&text).unwrap_or_default())),
            Err(ArtifactError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A file of the release that is there and is not to be had: for whoever imports it, not for us, to mend.
fn unreadable(name: &str, error: &io::Error) -> ArtifactError {
    ArtifactError::Malformed { name: name.to_owned(), why: format!("it cannot be read: {error}") }
}

#[derive(Default, Deserialize)]
struct Marker {
    version: Option<String>,
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
