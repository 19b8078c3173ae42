//! Counts the bytes that a connection receives, below TLS: no peer can send more than its allowance, in any layer.
//!
//! Endless headers, endless `100 Continue`, empty TLS records and key updates are all bytes; none of them is buffered or parsed beyond the
//! allowance.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connector::ByteStream;

/// The number of bytes that may still be received. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Arc<AtomicUsize>);

/// More bytes were received than allowed.
#[derive(Debug, thiserror::Error)]
#[error("the response exceeds its byte limit")]
pub(crate) struct Exceeded;

impl Allowance {
    pub(crate) fn of(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Sets the allowance, regardless of the rest of the previous one.
    pub(crate) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn spend(&self, bytes: usize) -> Result<(), Exceeded> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes).ok_or(Exceeded)?;
        self.0.store(left, Ordering::Relaxed);
        Ok(())
    }
}

/// A stream whose reads fail with [`Exceeded`] once its allowance is used up.
pub(crate) struct Metered {
    pub(crate) stream: Box<dyn ByteStream>,
    pub(crate) allowance: Allowance,
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.allowance.spend(buf.filled().len() - before).map_err(io::Error::other))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn reads_stop_at_the_allowance_and_a_new_one_starts_over() {
        let (near, mut far) = tokio::io::duplex(64);
        let allowance = Allowance::of(4);
        let mut metered = Metered { stream: Box::new(near), allowance: allowance.clone() };
        far.write_all(b"12345678901234").await.unwrap();
        let mut four = [0; 4];
        metered.read_exact(&mut four).await.unwrap();
        allowance.set(6);
        metered.read_exact(&mut four).await.unwrap();
        let error = metered.read_exact(&mut four).await.unwrap_err();
        assert!(error.get_ref().is_some_and(|cause| cause.is::<Exceeded>()), "{error}");
    }
}
