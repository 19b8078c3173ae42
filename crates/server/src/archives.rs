//! Stores and reads files of archived history, compressed, in the artifact store.

use std::io::Read;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::port::{ArchiveFile, ArchiveFiles};

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

    async fn read(&self, sha256: &str) -> Result<Vec<u8>, String> {
        let found = self.0.get(sha256, 0).await.map_err(|error| error.to_string())?;
        let (length, bytes) = found.ok_or_else(|| "its file is missing".to_owned())?;
        // The row of an archive can name any artifact, for example the images of a release.
        check_length(length)?;
        let compressed = bytes.try_collect::<Vec<_>>().await.map_err(|error| error.to_string())?.concat();
        if gpuaas_trust::sha256_hex(&compressed) != sha256 {
            return Err("its file does not have the digest that its record names".to_owned());
        }
        let expanding = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            zstd::Decoder::new(compressed.as_slice())?.take(LINES_BYTES_MAX + 1).read_to_end(&mut lines)?;
            Ok::<_, std::io::Error>(lines)
        });
        let lines = expanding.await.map_err(|_| "the process ends".to_owned())?.map_err(|error| error.to_string())?;
        check_length(lines.len() as u64)?;
        Ok(lines)
    }
}

fn check_length(length: u64) -> Result<(), String> {
    match length {
        0..=LINES_BYTES_MAX => Ok(()),
        _ => Err(format!("its file has more than {LINES_BYTES_MAX} bytes")),
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
    async fn missing_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let archives = Archives(ArtifactStore::open(folder.path(), Writers::One).unwrap());
        let missing = archives.read(&"0".repeat(64)).await.unwrap_err();
        assert!(missing.contains("missing"), "{missing}");
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
        assert!(refused.contains("more than"), "{refused}");
    }
}
