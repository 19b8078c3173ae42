//! The content-addressed store.

use std::{path::Path, sync::Arc};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem, path::Path as Key,
};

use crate::error::ArtifactError;

/// Bytes of a part of an upload.
const PART_BYTES: usize = 8 * 1_024 * 1_024;

/// Artifacts by their SHA-256.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    objects: Arc<dyn ObjectStore>,
}

impl ArtifactStore {
    /// In a folder, made if need be.
    pub fn in_folder(folder: &Path) -> Result<Self, ArtifactError> {
        let failed = |error: &dyn std::fmt::Display| ArtifactError::Store(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let objects = LocalFileSystem::new_with_prefix(folder).map_err(|error| failed(&error))?;
        Ok(Self { objects: Arc::new(objects) })
    }

    /// Takes `bytes` under `sha256` if that is what they are; returns their length. Taking them again changes nothing.
    pub async fn put_verified(
        &self,
        name: &str,
        sha256: &str,
        mut bytes: impl Stream<Item = std::io::Result<Bytes>> + Unpin,
    ) -> Result<u64, ArtifactError> {
        let failed = |error: &dyn std::fmt::Display| ArtifactError::Store(error.to_string());
        // An upload becomes visible when it is completed, whole.
        let mut upload = self.objects.put_multipart(&key(sha256)).await.map_err(|error| failed(&error))?;
        let (mut hash, mut length, mut part) = (Context::new(&SHA256), 0_u64, Vec::new());
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.map_err(|error| failed(&error))?;
            hash.update(&chunk);
            length += chunk.len() as u64;
            part.extend_from_slice(&chunk);
            if part.len() >= PART_BYTES {
                let full = PutPayload::from(std::mem::take(&mut part));
                upload.put_part(full).await.map_err(|error| failed(&error))?;
            }
        }
        let found = hex::encode(hash.finish());
        if found != sha256 {
            // What cannot be aborted stays invisible.
            let _ = upload.abort().await;
            return Err(ArtifactError::DigestMismatch { name: name.to_owned(), found, expected: sha256.to_owned() });
        }
        upload.put_part(PutPayload::from(part)).await.map_err(|error| failed(&error))?;
        upload.complete().await.map_err(|error| failed(&error))?;
        Ok(length)
    }

    /// An artifact's length and its bytes from `offset` on; `None` when it is not here.
    pub async fn get(
        &self,
        sha256: &str,
        offset: u64,
    ) -> Result<Option<(u64, impl Stream<Item = std::io::Result<Bytes>> + Send + Unpin + use<>)>, ArtifactError> {
        let options = GetOptions { range: (offset > 0).then_some(GetRange::Offset(offset)), ..GetOptions::default() };
        match self.objects.get_opts(&key(sha256), options).await {
            Ok(found) => {
                let length = found.meta.size;
                Ok(Some((length, found.into_stream().map_err(std::io::Error::other))))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(ArtifactError::Store(error.to_string())),
        }
    }
}

fn key(sha256: &str) -> Key {
    Key::from(sha256)
}
