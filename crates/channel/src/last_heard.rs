//! When the other end of a connection was last heard: a connection that falls silent ends only after an unanswered ping.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// When the other end of a connection was last heard. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LastHeard(Arc<Mutex<Instant>>);

impl LastHeard {
    pub(crate) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Returns how long nothing has been heard.
    pub(crate) fn silence(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn update(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// A stream that records the time of each read in a [`LastHeard`].
pub(crate) struct TimedReads<S> {
    stream: S,
    last: LastHeard,
}

impl<S> TimedReads<S> {
    pub(crate) fn new(stream: S, last: LastHeard) -> Self {
        Self { stream, last }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedReads<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let is_alive = match &read {
            // Also without bytes: an end that closes its connection is alive.
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
            }
            Poll::Pending => false,
        };
        if is_alive {
            self.last.update();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedReads<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_the_time_since_the_last_read_or_the_end() {
        let (near, mut far) = tokio::io::duplex(8);
        let last = LastHeard::now();
        let mut near = TimedReads::new(near, last.clone());
        tokio::time::advance(Duration::from_secs(3)).await;
        near.write_all(b"ping").await.unwrap();
        assert_eq!(last.silence(), Duration::from_secs(3), "what this end writes proves nothing");
        far.write_all(b"pong").await.unwrap();
        near.read_exact(&mut [0; 4]).await.unwrap();
        assert_eq!(last.silence(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(last.silence(), Duration::from_secs(7));
        drop(far);
        assert_eq!(near.read(&mut [0; 4]).await.unwrap(), 0);
        assert_eq!(last.silence(), Duration::ZERO, "the other end closed the connection");
    }
}
