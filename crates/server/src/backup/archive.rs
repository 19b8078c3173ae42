//! Reads and checks a backup file completely, without writing anything.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use gpuaas_trust::Sha256Writer;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use zeroize::Zeroizing;

use super::{ARTIFACTS, BackupError, FORMAT, MANIFEST, Manifest, NEXT_SEALING_KEY, ROWS, SEALING_KEY};

/// Longest member other than rows and artifacts, in bytes.
const SMALL_BYTES_MAX: u64 = 64 * 1_024;

/// Position of a member's bytes in the file.
#[derive(Clone, Copy, Debug)]
struct Span {
    offset: u64,
    length: u64,
}

/// A complete backup file whose digests all match.
pub(super) struct Archive {
    path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) sealing_key: Option<Zeroizing<Vec<u8>>>,
    pub(super) next_sealing_key: Option<Zeroizing<Vec<u8>>>,
    rows: Span,
    artifacts: BTreeMap<String, Span>,
}

/// The members read so far.
#[derive(Default)]
struct Members {
    small: BTreeMap<String, Zeroizing<Vec<u8>>>,
    rows: Option<(Span, String)>,
    artifacts: BTreeMap<String, Span>,
}

impl Archive {
    /// Reads the file to its end and checks it.
    pub(super) fn read(path: &Path) -> Result<Self, BackupError> {
        let invalid = |why: String| BackupError::Invalid { path: path.to_owned(), why };
        let file = File::open(path).map_err(|source| BackupError::File { path: path.to_owned(), source })?;
        let mut members = Members::default();
        let mut tar = tar::Archive::new(BufReader::new(file));
        for member in tar.entries().map_err(|error| invalid(error.to_string()))? {
            members.add(&mut member.map_err(|error| invalid(error.to_string()))?).map_err(invalid)?;
        }
        let Members { mut small, rows, artifacts } = members;
        let manifest = small.remove(MANIFEST).ok_or_else(|| invalid("it is truncated".to_owned()))?;
        let manifest: Manifest = serde_json::from_slice(&manifest).map_err(|error| invalid(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(invalid(format!("its format is {}, but this version reads {FORMAT}", manifest.format)));
        }
        let (rows, sha256) = rows.ok_or_else(|| invalid("it contains no rows".to_owned()))?;
        let (sealing_key, next_sealing_key) = (small.remove(SEALING_KEY), small.remove(NEXT_SEALING_KEY));
        let found = (sha256.as_str(), artifacts.len() as u64, sealing_key.is_some());
        if found != (&*manifest.rows_sha256, manifest.artifacts, manifest.holds_sealing_key) {
            return Err(invalid("rows, artifacts or sealing key do not match its manifest".to_owned()));
        }
        Ok(Self { path: path.to_owned(), manifest, sealing_key, next_sealing_key, rows, artifacts })
    }

    /// Opens the rows.
    pub(super) fn rows(&self) -> Result<BufReader<io::Take<File>>, BackupError> {
        let open = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.rows.offset))?;
            Ok(BufReader::new(file.take(self.rows.length)))
        };
        open().map_err(|source| BackupError::File { path: self.path.clone(), source })
    }

    /// Returns the digests of the artifacts.
    pub(super) fn artifacts(&self) -> impl Iterator<Item = &str> {
        self.artifacts.keys().map(String::as_str)
    }

    /// Opens an artifact.
    pub(super) async fn artifact(
        &self,
        sha256: &str,
    ) -> Result<ReaderStream<tokio::io::Take<tokio::fs::File>>, BackupError> {
        let span = self.artifacts.get(sha256).ok_or_else(|| self.invalid(format!("it lacks the artifact {sha256}")))?;
        let open = async {
            let mut file = tokio::fs::File::open(&self.path).await?;
            file.seek(SeekFrom::Start(span.offset)).await?;
            Ok(ReaderStream::new(file.take(span.length)))
        };
        open.await.map_err(|source| BackupError::File { path: self.path.clone(), source })
    }

    /// Returns an error that says why the backup is inconsistent.
    pub(super) fn invalid(&self, why: String) -> BackupError {
        BackupError::Invalid { path: self.path.clone(), why }
    }
}

impl Members {
    fn add(&mut self, member: &mut tar::Entry<'_, impl Read>) -> Result<(), String> {
        let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        if !member.header().entry_type().is_file() {
            return Err(format!("{name:?} is not a regular file"));
        }
        let place = Span { offset: member.raw_file_position(), length: member.size() };
        let is_first = match name.as_str() {
            ROWS => self.rows.replace((place, digest(member, place.length)?)).is_none(),
            SEALING_KEY | NEXT_SEALING_KEY | MANIFEST => {
                let bytes = read_small(member).map_err(|error| error.to_string())?;
                self.small.insert(name.clone(), bytes).is_none()
            }
            other => {
                let sha256 = other.strip_prefix(ARTIFACTS).ok_or_else(|| format!("it contains {name:?}"))?;
                if digest(member, place.length)? != sha256 {
                    return Err(format!("the artifact {sha256} was changed"));
                }
                self.artifacts.insert(sha256.to_owned(), place).is_none()
            }
        };
        if is_first { Ok(()) } else { Err(format!("it contains {name:?} twice")) }
    }
}

/// Returns the SHA-256 of a member. Fails if the member is shorter than its header states.
fn digest(member: &mut impl Read, length: u64) -> Result<String, String> {
    let mut hasher = Sha256Writer::new(io::sink());
    match io::copy(member, &mut hasher) {
        Ok(read) if read == length => Ok(hasher.finish().1),
        Ok(_) => Err("it is truncated".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn read_small(member: &mut impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    member.take(SMALL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL_BYTES_MAX {
        return Err(io::Error::other("a member is too long"));
    }
    Ok(bytes)
}
