//! Stores files of archived history, compressed, in the artifact store.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use gpuaas_artifacts::ArtifactStore;
use gpuaas_engine::port::{ArchiveFile, ArchiveFiles};

/// zstd's default level: shrinks the lines about fifteen-fold at about 200 MB/s.
const LEVEL: i32 = 3;

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
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
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
    }
}
