//! The way to the apiserver's port. This crate opens no connection itself: its caller implements [`Connector`], for example by a tunnel.

use std::{future::Future, io};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to the apiserver's port.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Opens byte streams to the apiserver's port. The error `ConnectionRefused` means that nothing listens there; any other error means that
/// the port cannot be reached. Every closure that opens a stream is a connector.
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
