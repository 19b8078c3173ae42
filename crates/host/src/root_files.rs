//! The files of a host as [`Files`]. A slow disk blocks no other task, and a dropped operation changes nothing that it has not begun to put in
//! place.

use async_trait::async_trait;
use camino::Utf8Path;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    digest::ContentId,
    error::HostError,
    file::{Changed, Durable, FileSpec},
    files::{
        append_bytes, copy_verified, file, has_content, list, make_folder, open, open_append, overwrite, read,
        read_verified, remove_empty_folder, rename, write,
    },
    host::Files,
    removal,
    root::Root,
    write_lock::Cancellation,
};

/// The files of a host, all of them under its root.
#[derive(Clone, Debug)]
pub(crate) struct RootFiles {
    root: Root,
}

impl RootFiles {
    pub(crate) fn under(root: Root) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    /// Runs blocking work on its own thread. Dropping the future does not stop work that has begun; the work checks for that with `cancellation`.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root, &Cancellation) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let root = self.root.clone();
        let (_caller, cancellation) = Cancellation::new();
        let begun = move || cancellation.check().and_then(|()| work(&root, &cancellation));
        let done = tokio::task::spawn_blocking(begun).await;
        done.unwrap_or_else(|error| Err(HostError::Init(format!("a file operation was aborted: {error}"))))
    }
}

#[async_trait]
impl Files for RootFiles {
    async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
        let file = file.clone();
        self.run_blocking(move |root, cancellation| write(root, &file, cancellation)).await
    }

    async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| read(root, &path, bytes_max)).await
    }

    async fn read_verified(&self, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| read_verified(root, &path, id)).await
    }

    async fn has_content(&self, path: &Utf8Path, id: ContentId) -> Result<bool, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, cancellation| has_content(root, &path, id, cancellation)).await
    }

    async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| root.place(&path)?.map_or(Ok(Changed::No), |place| removal::remove(&place)))
            .await
    }

    async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| remove_empty_folder(root, &path)).await
    }

    async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| make_folder(root, &path, mode)).await
    }

    async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| root.place(&path)?.map_or(Ok(false), |place| Ok(place.status()?.is_some())))
            .await
    }

    async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| list(root, &path)).await
    }

    async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| Ok(file(root, &path)?.map(|held| held.size()))).await
    }

    async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError> {
        let path = path.to_owned();
        let file = self.run_blocking(move |root, _| open(root, &path)).await?;
        Ok(Box::new(tokio::fs::File::from_std(file)))
    }

    async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError> {
        let path = path.to_owned();
        let file = self.run_blocking(move |root, _| open_append(root, &path)).await?;
        Ok(Box::new(tokio::fs::File::from_std(file)))
    }

    async fn sync(&self, path: &Utf8Path) -> Result<(), HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| open(root, &path)?.sync_all().map_err(HostError::file("sync", &path))).await
    }

    async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| append_bytes(root, &path, &content, durable)).await
    }

    async fn overwrite(&self, path: &Utf8Path, at: u64, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
        let path = path.to_owned();
        self.run_blocking(move |root, _| overwrite(root, &path, at, &content, durable)).await
    }

    async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.run_blocking(move |root, _| rename(root, &from, &to)).await
    }

    async fn copy_verified(
        &self,
        from: &Utf8Path,
        to: &Utf8Path,
        mode: u32,
        id: ContentId,
    ) -> Result<Changed, HostError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.run_blocking(move |root, cancellation| copy_verified(root, &from, &to, mode, id, cancellation)).await
    }
}
