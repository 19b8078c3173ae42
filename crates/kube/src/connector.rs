//! Byte streams to the apiserver's port, which the caller opens.

use std::{future::Future, io};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to the apiserver's port.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Opens byte streams to the apiserver's port. The error `ConnectionRefused` means that nothing listens there; any other error means that
/// the port cannot be reached.
pub trait Connector: Send + Sync + 'static {
    /// Opens a new stream.
    fn open(&self) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>>;
}

impl<F, R> Connector for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'static,
{
    fn open(&self) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> {
        Box::pin(self())
    }
}
