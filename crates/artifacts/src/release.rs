//! Importing a release from a folder: every needed file listed in the sum file, there, whole and with its digest.

use std::path::Path;

use futures::TryStreamExt;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::{error::ArtifactError, store::ArtifactStore};

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1_024;
/// Longest sum file.
const SUMS_BYTES_MAX: u64 = 1_024 * 1_024;
/// The file by which a release says that it is a stand-in.
const STAND_IN: &str = "STAND-IN";

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
    /// Whether it says of itself that it is a stand-in.
    pub stand_in: bool,
}

/// Imports `wanted` files of the release in `folder`, verified against its sum file `sums`.
pub async fn import_release(
    store: &ArtifactStore,
    folder: &Path,
    wanted: &[String],
    sums: &str,
) -> Result<ImportedRelease, ArtifactError> {
    let listed = read_sums(folder, sums).await?;
    let mut files = Vec::new();
    for name in wanted {
        let sha256 = listed.iter().find(|(_, listed)| listed == name).map(|(sha256, _)| sha256.clone());
        let sha256 = sha256.ok_or_else(|| ArtifactError::Unlisted { sums: sums.to_owned(), name: name.clone() })?;
        let file = tokio::fs::File::open(folder.join(name)).await;
        let file = file.map_err(|_| ArtifactError::Missing { name: name.clone() })?;
        let bytes = ReaderStream::with_capacity(file, CHUNK_BYTES).map_ok(Into::into);
        let size_bytes = store.put_verified(name, &sha256, Box::pin(bytes)).await?;
        files.push(ImportedFile { name: name.clone(), sha256, size_bytes });
    }
    Ok(ImportedRelease { files, stand_in: folder.join(STAND_IN).exists() })
}

/// Lines of `DIGEST  NAME`; a star before the name, as for binary files, is taken off.
async fn read_sums(folder: &Path, sums: &str) -> Result<Vec<(String, String)>, ArtifactError> {
    let missing = |_| ArtifactError::Missing { name: sums.to_owned() };
    let file = tokio::fs::File::open(folder.join(sums)).await.map_err(missing)?;
    let mut text = String::new();
    file.take(SUMS_BYTES_MAX).read_to_string(&mut text).await.map_err(missing)?;
    let line = |line: &str| {
        let (sha256, name) = line.split_once(char::is_whitespace)?;
        Some((sha256.to_ascii_lowercase(), name.trim().trim_start_matches('*').to_owned()))
    };
    Ok(text.lines().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    async fn import(files: &[(&str, &str)]) -> Result<ImportedRelease, ArtifactError> {
        let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let store = ArtifactStore::in_folder(kept.path()).unwrap();
        let imported = import_release(&store, folder.path(), &["a.tar".to_owned()], "sums.txt").await;
        if imported.is_err() {
            assert!(store.get(HELLO, 0).await.unwrap().is_none(), "nothing of a refused release is visible");
        }
        imported
    }

    #[tokio::test]
    async fn a_sound_release_is_imported_and_says_whether_it_is_a_stand_in() {
        let sums = format!("{HELLO}  a.tar\n");
        let plain = import(&[("a.tar", "hello"), ("sums.txt", &sums)]).await.unwrap();
        assert_eq!((plain.files[0].size_bytes, plain.stand_in), (5, false));
        assert!(import(&[("a.tar", "hello"), ("sums.txt", &sums), (STAND_IN, "")]).await.unwrap().stand_in);
    }

    #[tokio::test]
    async fn bad_input_is_refused_with_its_own_reason() {
        let sums = format!("{HELLO}  a.tar\n");
        let wrong = import(&[("a.tar", "hallo"), ("sums.txt", &sums)]).await;
        assert!(matches!(wrong, Err(ArtifactError::DigestMismatch { .. })), "{wrong:?}");
        let cut = import(&[("a.tar", "hel"), ("sums.txt", &sums)]).await;
        assert!(matches!(cut, Err(ArtifactError::DigestMismatch { .. })), "{cut:?}");
        let unlisted = import(&[("a.tar", "hello"), ("sums.txt", "")]).await;
        assert!(matches!(unlisted, Err(ArtifactError::Unlisted { .. })), "{unlisted:?}");
        let missing = import(&[("sums.txt", &sums)]).await;
        assert!(matches!(missing, Err(ArtifactError::Missing { .. })), "{missing:?}");
        assert!(matches!(import(&[("a.tar", "hello")]).await, Err(ArtifactError::Missing { .. })));
    }
}
