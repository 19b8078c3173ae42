//! Importing a release from a folder: its sum file verified, every needed file listed in it, there, whole, with its digest, and harmless.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
};

use gpuaas_model::VerifiedBy;
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use crate::{
    archive::{self, Packing},
    digest,
    error::ArtifactError,
    folder::Folder,
    store::{ARTIFACT_BYTES_MAX, ArtifactStore},
    sums::{SUMS_BYTES_MAX, Sums},
    verification::{Proof, SIGNATURE_BYTES_MAX, Verification},
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
    /// What verified its sum file.
    pub verified_by: VerifiedBy,
}

/// What is to be imported of a release, and what verifies it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The files that are needed, by the release's own names for them.
    pub files: &'a [String],
    /// The release's sum file.
    pub sums: &'a str,
    /// What the request brings along to verify it.
    pub proof: Proof<'a>,
}

/// The name of the signature file over a sum file.
pub(crate) fn signature_of(sums: &str) -> String {
    format!("{sums}.minisig")
}

/// Imports the release in a folder.
///
/// All files are looked through before the first one is taken, so a refused release leaves nothing visible. Each is opened once, and verified once more
/// while it is taken: a file that changes meanwhile is noticed.
pub(crate) async fn import_release(
    store: &ArtifactStore,
    folder: Folder,
    wanted: &Wanted<'_>,
    verification: &Verification,
) -> Result<ImportedRelease, ArtifactError> {
    let checking = Checking {
        folder,
        wanted: wanted.files.to_vec(),
        sums: wanted.sums.to_owned(),
        sums_sha256: wanted.proof.sums_sha256.map(str::to_owned),
        signature: wanted.proof.signature.map(str::to_owned),
        verification: verification.clone(),
    };
    let checked = tokio::task::spawn_blocking(move || checking.run());
    let (mut release, opened) = checked.await.map_err(|error| ArtifactError::Store(error.to_string()))??;
    for (file, mut open) in release.files.iter_mut().zip(opened) {
        open.rewind().map_err(|error| unreadable(&file.name, &error))?;
        let bytes = ReaderStream::with_capacity(tokio::fs::File::from_std(open), CHUNK_BYTES);
        file.size_bytes = store.put_verified(&file.name, &file.sha256, bytes).await?;
    }
    Ok(release)
}

/// The sum file of a release, read once, and what verifies it. Blocks.
pub(crate) fn verified_sums(
    folder: &Folder,
    sums: &str,
    proof: &Proof<'_>,
    verification: &Verification,
) -> Result<(String, VerifiedBy), ArtifactError> {
    let bytes = whole(folder, sums, SUMS_BYTES_MAX)?.ok_or_else(|| missing(sums))?;
    let beside = match proof.is_empty() {
        true => whole(folder, &signature_of(sums), SIGNATURE_BYTES_MAX)?,
        false => None,
    };
    let beside = beside.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let verified_by = verification.verify(sums, &bytes, proof, beside.as_deref())?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), verified_by))
}

/// The first pass, which takes nothing. Blocks.
struct Checking {
    folder: Folder,
    wanted: Vec<String>,
    sums: String,
    sums_sha256: Option<String>,
    signature: Option<String>,
    verification: Verification,
}

impl Checking {
    fn run(&self) -> Result<(ImportedRelease, Vec<File>), ArtifactError> {
        if self.wanted.len() > FILES_MAX {
            return Err(ArtifactError::TooLarge { name: "the release".into(), limit: FILES_MAX as u64, unit: "files" });
        }
        let proof = Proof { sums_sha256: self.sums_sha256.as_deref(), signature: self.signature.as_deref() };
        let (text, verified_by) = verified_sums(&self.folder, &self.sums, &proof, &self.verification)?;
        let sums = Sums::parse(&self.sums, &text);
        // What is cheap to see is seen first: a gigabyte is not hashed to say that another file is missing.
        let (mut files, mut opened) = (Vec::with_capacity(self.wanted.len()), Vec::with_capacity(self.wanted.len()));
        for name in &self.wanted {
            let sha256 = sums.digest(name)?.to_owned();
            let (file, size_bytes) = file(&self.folder, name, ARTIFACT_BYTES_MAX)?.ok_or_else(|| missing(name))?;
            files.push(ImportedFile { name: name.clone(), sha256, size_bytes });
            opened.push(file);
        }
        for (file, open) in files.iter().zip(&opened) {
            look_through(file, open)?;
        }
        let marker = self.marker(&sums)?;
        let stand_in = marker.is_some();
        let version = marker.and_then(|marker| marker.version);
        Ok((ImportedRelease { files, version, stand_in, verified_by }, opened))
    }

    /// `None` without a marker; a marker that says nothing is one. Where the sum file lists it, it must be there as listed.
    fn marker(&self, sums: &Sums<'_>) -> Result<Option<Marker>, ArtifactError> {
        let bytes = whole(&self.folder, STAND_IN, STAND_IN_BYTES_MAX)?;
        if let Ok(expected) = sums.digest(STAND_IN) {
            let found = digest::of_bytes(bytes.as_deref().ok_or_else(|| missing(STAND_IN))?);
            if found != expected {
                let (name, expected) = (STAND_IN.to_owned(), expected.to_owned());
                return Err(ArtifactError::DigestMismatch { name, found, expected });
            }
        }
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap_or_default()))
    }
}

fn look_through(file: &ImportedFile, open: &File) -> Result<(), ArtifactError> {
    let name = &file.name;
    let (found, length) = digest::of_file(open).map_err(|error| unreadable(name, &error))?;
    if found == file.sha256 {
        return archive::look_through(name, open);
    }
    // Bytes that no digest confirms are unpacked, with bounds, only to say what is wrong: cut off, or other ones.
    if length == 0 {
        return Err(ArtifactError::Truncated { name: name.clone(), why: "it is empty".into() });
    }
    if matches!(Packing::of(name), Packing::TarGzip | Packing::TarZstd)
        && let Err(early @ ArtifactError::Truncated { .. }) = archive::look_through(name, open)
    {
        return Err(early);
    }
    Err(ArtifactError::DigestMismatch { name: name.clone(), found, expected: file.sha256.clone() })
}

/// A file of the release with its length. One that may not be read, a link and a pipe are as absent as one that is not there; the log tells them apart.
fn file(folder: &Folder, name: &str, limit: u64) -> Result<Option<(File, u64)>, ArtifactError> {
    match folder.file(name) {
        Ok(Some((_, length))) if length > limit => {
            Err(ArtifactError::TooLarge { name: name.to_owned(), limit, unit: "bytes" })
        }
        Ok(file) => Ok(file),
        Err(error) => {
            tracing::warn!(name, %error, "a file of a release cannot be read");
            Ok(None)
        }
    }
}

/// The content of a short file; `None` when there is none.
fn whole(folder: &Folder, name: &str, limit: u64) -> Result<Option<Vec<u8>>, ArtifactError> {
    let Some((file, _)) = file(folder, name, limit)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    Ok(Some(bytes))
}

fn missing(name: &str) -> ArtifactError {
    ArtifactError::Missing { name: name.to_owned() }
}

/// A file of the release that is there and is not to be had: for the importer, not for us, to mend.
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
