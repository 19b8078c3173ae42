//! Imports a release from a folder: verifies its checksum file, then checks that every needed file is listed, exists, has its digest and, if it
//! is an archive, is safe.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
};

use gpuaas_model::VerifiedBy;
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use crate::{
    archive::{self, ArchiveFormat},
    digest,
    error::ArtifactError,
    folder::Folder,
    store::{ARTIFACT_BYTES_MAX, ArtifactStore},
    sums::{SUMS_BYTES_MAX, Sums},
    verification::{Proof, SIGNATURE_BYTES_MAX, Verification},
};

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Most files that one import may request.
const FILES_MAX: usize = 256;
/// Marker file of a stand-in release.
pub(crate) const STAND_IN: &str = "STAND-IN";
/// Longest marker file, in bytes; a longer one is refused.
pub(crate) const STAND_IN_BYTES_MAX: u64 = 4096;

/// An imported file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedFile {
    /// File name in the release.
    pub name: String,
    /// SHA-256 in 64 lower-case hex digits.
    pub sha256: String,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// An imported release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedRelease {
    /// The files, in the order of [`ReleaseRequest::files`].
    pub files: Vec<ImportedFile>,
    /// Version from the stand-in marker, otherwise from the last part of the source's path; `None` if neither gives one.
    pub version: Option<String>,
    /// Whether the release has the marker file of a stand-in.
    pub stand_in: bool,
    /// The digest or key that verified the checksum file, or [`VerifiedBy::Nothing`].
    pub verified_by: VerifiedBy,
}

/// The files to import from a release, and the proof of its checksum file.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<'a> {
    /// Names of the needed files in the release.
    pub files: &'a [String],
    /// Name of the release's checksum file.
    pub sums: &'a str,
    /// The request's proof of the checksum file.
    pub proof: Proof<'a>,
    /// The requested version. A release that states another one is refused.
    pub version: Option<&'a str>,
}

/// Returns the name of a checksum file's signature file.
pub(crate) fn signature_of(sums: &str) -> String {
    format!("{sums}.minisig")
}

/// Imports the release in a folder.
///
/// All files are checked before the first one is stored, so that a refused release leaves nothing visible. Each file is opened once and
/// verified again while it is stored, so that a change in between is noticed.
pub(crate) async fn import_release(
    store: &ArtifactStore,
    folder: Folder,
    wanted: &ReleaseRequest<'_>,
    verification: &Verification,
) -> Result<ImportedRelease, ArtifactError> {
    let check = ReleaseCheck {
        folder,
        wanted: wanted.files.to_vec(),
        sums: wanted.sums.to_owned(),
        sums_sha256: wanted.proof.sums_sha256.map(str::to_owned),
        signature: wanted.proof.signature.map(str::to_owned),
        version: wanted.version.map(str::to_owned),
        verification: verification.clone(),
    };
    let checked = tokio::task::spawn_blocking(move || check.run());
    let (mut release, opened) = checked.await.map_err(|error| ArtifactError::Store(error.to_string()))??;
    for (file, mut open) in release.files.iter_mut().zip(opened) {
        open.rewind().map_err(|error| unreadable(&file.name, &error))?;
        let bytes = ReaderStream::with_capacity(tokio::fs::File::from_std(open), CHUNK_BYTES);
        file.size_bytes = store.put_verified(&file.name, &file.sha256, bytes).await?;
    }
    Ok(release)
}

/// Reads the checksum file of a release once and verifies it; returns its text and the proof that verified it. Blocks.
pub(crate) fn verified_sums(
    folder: &Folder,
    sums: &str,
    proof: &Proof<'_>,
    verification: &Verification,
) -> Result<(String, VerifiedBy), ArtifactError> {
    let bytes = read_file(folder, sums, SUMS_BYTES_MAX)?.ok_or_else(|| missing(sums))?;
    let adjacent = match proof.is_empty() {
        true => read_file(folder, &signature_of(sums), SIGNATURE_BYTES_MAX)?,
        false => None,
    };
    let signature = adjacent.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let verified_by = verification.verify(sums, &bytes, proof, signature.as_deref())?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), verified_by))
}

/// The first pass of an import, which stores nothing. Blocks.
struct ReleaseCheck {
    folder: Folder,
    wanted: Vec<String>,
    sums: String,
    sums_sha256: Option<String>,
    signature: Option<String>,
    version: Option<String>,
    verification: Verification,
}

impl ReleaseCheck {
    fn run(&self) -> Result<(ImportedRelease, Vec<File>), ArtifactError> {
        if self.wanted.len() > FILES_MAX {
            return Err(ArtifactError::TooLarge { name: "the release".into(), limit: FILES_MAX as u64, unit: "files" });
        }
        let proof = Proof { sums_sha256: self.sums_sha256.as_deref(), signature: self.signature.as_deref() };
        let (text, verified_by) = verified_sums(&self.folder, &self.sums, &proof, &self.verification)?;
        let sums = Sums::parse(&self.sums, &text);
        // Cheap checks first, so that gigabytes are not hashed only to report that another file is missing.
        let (mut files, mut opened) = (Vec::with_capacity(self.wanted.len()), Vec::with_capacity(self.wanted.len()));
        for name in &self.wanted {
            let sha256 = sums.digest(name)?.to_owned();
            let (file, size_bytes) = file(&self.folder, name, ARTIFACT_BYTES_MAX)?.ok_or_else(|| missing(name))?;
            files.push(ImportedFile { name: name.clone(), sha256, size_bytes });
            opened.push(file);
        }
        for (file, open) in files.iter().zip(&opened) {
            check_file(file, open)?;
        }
        let marker = self.marker(&sums)?;
        let stand_in = marker.is_some();
        let version = marker.and_then(|marker| marker.version);
        if let (Some(stated), Some(wanted)) = (&version, &self.version)
            && stated != wanted
        {
            return Err(ArtifactError::OtherVersion { stated: stated.clone() });
        }
        Ok((ImportedRelease { files, version, stand_in, verified_by }, opened))
    }

    /// Reads the stand-in marker; `None` if there is none. An unparsable marker counts as one without a version. If the checksum file lists the
    /// marker, it must exist with the listed digest.
    fn marker(&self, sums: &Sums<'_>) -> Result<Option<Marker>, ArtifactError> {
        let bytes = read_file(&self.folder, STAND_IN, STAND_IN_BYTES_MAX)?;
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

fn check_file(file: &ImportedFile, open: &File) -> Result<(), ArtifactError> {
    let name = &file.name;
    let (found, length) = digest::of_file(open).map_err(|error| unreadable(name, &error))?;
    if found == file.sha256 {
        return archive::check_archive(name, open);
    }
    // Unverified bytes are unpacked, within bounds, only to tell a truncated file from a different one.
    if length == 0 {
        return Err(ArtifactError::Truncated { name: name.clone(), why: "it is empty".into() });
    }
    if matches!(ArchiveFormat::of(name), ArchiveFormat::TarGzip | ArchiveFormat::TarZstd)
        && let Err(early @ ArtifactError::Truncated { .. }) = archive::check_archive(name, open)
    {
        return Err(early);
    }
    Err(ArtifactError::DigestMismatch { name: name.clone(), found, expected: file.sha256.clone() })
}

/// Opens a file of the release and returns it with its length. Files without read permission, links and pipes count as missing; the log
/// has the reason.
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

/// Reads a short file; `None` if it is missing.
fn read_file(folder: &Folder, name: &str, limit: u64) -> Result<Option<Vec<u8>>, ArtifactError> {
    let Some((file, _)) = file(folder, name, limit)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    Ok(Some(bytes))
}

fn missing(name: &str) -> ArtifactError {
    ArtifactError::Missing { name: name.to_owned() }
}

/// A file of the release that cannot be read: an error of the release, which its importer must fix, not of the store.
fn unreadable(name: &str, error: &io::Error) -> ArtifactError {
    ArtifactError::Malformed { name: name.to_owned(), why: format!("it cannot be read: {error}") }
}

#[derive(Default, Deserialize)]
struct Marker {
    version: Option<String>,
}

#[cfg(test)]
mod tests;
