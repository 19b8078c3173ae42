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

use super::{ARTIFACTS, FORMAT, MANIFEST, Manifest, NEXT_SEALING_KEY, ROWS, SEALING_KEY};
use crate::error::BackupError;

/// Longest member other than rows and artifacts, in bytes.
const SMALL_BYTES_MAX: u64 = 64 * 1_024;
/// Hex digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

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

/// What is wrong with a member.
enum Defect {
    /// It does not belong to a backup.
    Foreign,
    /// It is damaged, for the reason in this phrase.
    Damaged(String),
}

/// The members read so far.
#[derive(Default)]
struct Members {
    small: BTreeMap<String, Zeroizing<Vec<u8>>>,
    /// Whether a member has the name of the rows, which come first in a backup.
    begins_rows: bool,
    rows: Option<(Span, String)>,
    artifacts: BTreeMap<String, Span>,
}

impl Archive {
    /// Reads the file to its end and checks it.
    pub(super) fn read(path: &Path) -> Result<Self, BackupError> {
        let invalid = |why: String| BackupError::Invalid { path: path.to_owned(), why };
        let file = |source| BackupError::File { path: path.to_owned(), source };
        let mut members = Members::default();
        let mut tar = tar::Archive::new(BufReader::new(File::open(path).map_err(file)?));
        for member in tar.entries().map_err(file)? {
            // The parser's message quotes bytes of the file.
            let defect = match member {
                Ok(mut member) => members.add(&mut member).err(),
                Err(_) => Some(Defect::Damaged("it is truncated or damaged".to_owned())),
            };
            match defect {
                Some(Defect::Damaged(why)) if members.begins_rows => return Err(invalid(why)),
                Some(Defect::Damaged(_) | Defect::Foreign) => {
                    return Err(BackupError::NotABackup { path: path.to_owned() });
                }
                None => {}
            }
        }
        let Members { mut small, rows, artifacts, .. } = members;
        let manifest = small.remove(MANIFEST).ok_or_else(|| invalid("it is truncated".to_owned()))?;
        let manifest: Manifest =
            serde_json::from_slice(&manifest).map_err(|_| invalid("its manifest is invalid".to_owned()))?;
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
    fn add(&mut self, member: &mut tar::Entry<'_, impl Read>) -> Result<(), Defect> {
        let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        if !member.header().entry_type().is_file() {
            return Err(Defect::Foreign);
        }
        let place = Span { offset: member.raw_file_position(), length: member.size() };
        let is_first = match name.as_str() {
            ROWS => {
                self.begins_rows = true;
                self.rows.replace((place, digest(member, place.length)?)).is_none()
            }
            SEALING_KEY | NEXT_SEALING_KEY | MANIFEST => {
                let bytes = read_small(member).map_err(|error| Defect::Damaged(error.to_string()))?;
                self.small.insert(name.clone(), bytes).is_none()
            }
            other => {
                let is_digest =
                    |text: &&str| text.len() == SHA256_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let sha256 = other.strip_prefix(ARTIFACTS).filter(is_digest).ok_or(Defect::Foreign)?;
                if digest(member, place.length)? != sha256 {
                    return Err(Defect::Damaged(format!("the artifact {sha256} was changed")));
                }
                self.artifacts.insert(sha256.to_owned(), place).is_none()
            }
        };
        if is_first { Ok(()) } else { Err(Defect::Damaged(format!("it contains {name} twice"))) }
    }
}

/// Returns the SHA-256 of a member. Fails if the member is shorter than its header states.
fn digest(member: &mut impl Read, length: u64) -> Result<String, Defect> {
    let mut hasher = Sha256Writer::new(io::sink());
    match io::copy(member, &mut hasher) {
        Ok(read) if read == length => Ok(hasher.finish().1),
        Ok(_) => Err(Defect::Damaged("it is truncated".to_owned())),
        Err(error) => Err(Defect::Damaged(error.to_string())),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(content: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, content).expect("written");
        let Err(refused) = Archive::read(&path) else { panic!("it was accepted") };
        refused.to_string().replace(&*path.to_string_lossy(), "FILE")
    }

    fn tar(members: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, name, content.as_bytes()).expect("appended");
        }
        tar.into_inner().expect("whole")
    }

    #[test]
    fn error_of_a_file_that_is_no_backup_quotes_nothing_of_it() {
        let secrets = "SECRET".repeat(200);
        let foreign = [tar(&[("SECRET", "x")]), tar(&[("artifacts/SECRET", "x")]), secrets.clone().into_bytes()];
        for content in foreign {
            assert_eq!(refusal(&content), "FILE is not a backup of GPUaaS");
        }
        for content in [tar(&[(ROWS, "x"), (MANIFEST, r#"{"format":"SECRET"}"#)]), tar(&[(MANIFEST, &secrets)])] {
            assert_eq!(refusal(&content), "FILE is not a complete backup: its manifest is invalid");
        }
        let mut torn = tar(&[(ROWS, "x")]);
        torn.truncate(1_024);
        torn.extend(secrets.bytes());
        assert_eq!(refusal(&torn), "FILE is not a complete backup: it is truncated or damaged");
    }

    #[test]
    fn backup_cut_within_its_rows_is_truncated() {
        let mut torn = tar(&[(ROWS, &"x".repeat(1_000))]);
        torn.truncate(700);
        assert_eq!(refusal(&torn), "FILE is not a complete backup: it is truncated");
    }
}
