//! Stores and reads files of archived history, compressed, in the artifact store.

use std::io::Read;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::port::{ArchiveFile, ArchiveFiles, ArchiveReadError};

/// zstd's default level: shrinks the lines about fifteen-fold at about 200 MB/s.
const LEVEL: i32 = 3;

/// Most bytes of an archive, compressed and expanded: its lines end after 16 MiB and one entry.
const LINES_BYTES_MAX: u64 = 64 * 1_024 * 1_024;

pub(crate) struct Archives(pub(crate) ArtifactStore);

#[async_trait]
impl ArchiveFiles for Archives {
    async fn store(&self, lines: Vec<u8>) -> Result<ArchiveFile, String> {
        let compressing = tokio::task::spawn_blocking(move || {
            let compressed = zstd::encode_all(lines.as_slice(), LEVEL)?;
            Ok::<_, std::io::Error>((gpuaas_trust::sha256_hex(&compressed), Bytes::from(compressed)))
        });
        let compressed = compressing.await.map_err(|_| "the process ends".to_owned())?;
        let (sha256, bytes) = compressed.map_err(|error| error.to_string())?;
        let bytes = stream::iter([Ok(bytes)]);
        let size_bytes = self.0.put_verified("an archive", &sha256, bytes).await.map_err(|error| error.to_string())?;
        Ok(ArchiveFile { sha256, size_bytes })
    }

    async fn read(&self, sha256: &str) -> Result<Vec<u8>, ArchiveReadError> {
        let failed = |why: String| ArchiveReadError::Failed(why);
        // The row of an archive can name anything, for example the images of a release.
        if !gpuaas_trust::is_sha256_hex(sha256) {
            return Err(ArchiveReadError::Changed("its record names no digest".to_owned()));
        }
        let found = self.0.get(sha256, 0).await.map_err(|error| failed(error.to_string()))?;
        let (length, bytes) = found.ok_or(ArchiveReadError::Missing)?;
        check_length(length)?;
        let compressed = bytes.try_collect::<Vec<_>>().await.map_err(|error| failed(error.to_string()))?.concat();
        if gpuaas_trust::sha256_hex(&compressed) != sha256 {
            let why = "its file does not have the digest that its record names";
            return Err(ArchiveReadError::Changed(why.to_owned()));
        }
        let expanding = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            zstd::Decoder::new(compressed.as_slice())?.take(LINES_BYTES_MAX + 1).read_to_end(&mut lines)?;
            Ok::<_, std::io::Error>(lines)
        });
        let expanded = expanding.await.map_err(|_| failed("the process ends".to_owned()))?;
        let lines = expanded.map_err(|error| ArchiveReadError::Changed(error.to_string()))?;
        check_length(lines.len() as u64)?;
        Ok(lines)
    }
}

fn check_length(length: u64) -> Result<(), ArchiveReadError> {
    match length {
        0..=LINES_BYTES_MAX => Ok(()),
        _ => Err(ArchiveReadError::Changed(format!("its file has more than {LINES_BYTES_MAX} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_artifacts::Writers;

    use super::*;

    #[tokio::test]
    async fn equal_lines_are_stored_as_one_readable_file() {
        let folder = tempfile::tempdir().unwrap();
        let archives = Archives(ArtifactStore::open(folder.path(), Writers::One).unwrap());
        let lines = b"{\"archive\":{}}\n".repeat(1_000);
        let first = archives.store(lines.clone()).await.unwrap();
        assert_eq!(archives.store(lines.clone()).await.unwrap(), first);
        let (length, bytes) = archives.0.get(&first.sha256, 0).await.unwrap().unwrap();
        assert!(length == first.size_bytes && length < 1_000, "{length}");
        let bytes = bytes.try_collect::<Vec<_>>().await.unwrap().concat();
        assert_eq!(zstd::decode_all(bytes.as_slice()).unwrap(), lines);
        assert_eq!(archives.read(&first.sha256).await, Ok(lines));
    }

    #[tokio::test]
    async fn missing_or_changed_file_differs_from_one_that_cannot_be_read_now() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("artifacts");
        let archives = Archives(ArtifactStore::open(&folder, Writers::One).unwrap());
        let stored = archives.store(b"{}\n".to_vec()).await.unwrap();
        assert_eq!(archives.read(&"0".repeat(64)).await, Err(ArchiveReadError::Missing));
        assert!(matches!(archives.read("../x").await, Err(ArchiveReadError::Changed(_))), "it is no digest");
        std::fs::write(folder.join(&stored.sha256), "other").unwrap();
        assert!(matches!(archives.read(&stored.sha256).await, Err(ArchiveReadError::Changed(_))), "it has other bytes");
        // Neither root nor another user can look a name up below a file.
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "no folder").unwrap();
        assert!(matches!(archives.read(&stored.sha256).await, Err(ArchiveReadError::Failed(_))), "nothing can be read");
    }

    #[tokio::test]
    async fn long_artifact_is_not_read_as_an_archive() {
        let folder = tempfile::tempdir().unwrap();
        let archives = Archives(ArtifactStore::open(folder.path(), Writers::One).unwrap());
        let image = vec![0; usize::try_from(LINES_BYTES_MAX).unwrap() + 1];
        let sha256 = gpuaas_trust::sha256_hex(&image);
        let bytes = stream::iter([Ok(Bytes::from(image))]);
        archives.0.put_verified("an image", &sha256, bytes).await.unwrap();
        let refused = archives.read(&sha256).await.unwrap_err();
        assert!(matches!(&refused, ArchiveReadError::Changed(why) if why.contains("more than")), "{refused}");
    }
}
