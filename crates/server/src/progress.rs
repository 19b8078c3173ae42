//! Closes connections whose client does not take the written data.
//!
//! Guarantees: while written bytes wait, the client takes some every [`STALLED_AFTER`], and [`LEAST_BYTES`] or all of them within
//! [`LEAST_BYTES_WITHIN`]; otherwise the next write fails with `TimedOut`. A connection without waiting bytes is never closed. If bytes
//! still wait when the connection is dropped, the kernel discards them.
//!
//! This works below TLS and counts bytes that the kernel accepts as taken. `sockets` limits how long the kernel may keep them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};

/// Longest time without any progress while bytes wait; the node channel uses the same.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(30);
/// Fewest bytes taken within [`LEAST_BYTES_WITHIN`] while more wait, about 220 bytes per second. A byte every 29 seconds is no progress.
const LEAST_BYTES: usize = 64 * 1_024;
/// Period in which at least [`LEAST_BYTES`] are taken.
pub(crate) const LEAST_BYTES_WITHIN: Duration = Duration::from_secs(300);

/// The slowest progress that is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressRule {
    pub(crate) stalled_after: Duration,
    pub(crate) least_bytes: usize,
    pub(crate) least_bytes_within: Duration,
}

impl Default for ProgressRule {
    fn default() -> Self {
        Self { stalled_after: STALLED_AFTER, least_bytes: LEAST_BYTES, least_bytes_within: LEAST_BYTES_WITHIN }
    }
}

/// A stream that can be closed without delivering its unsent bytes.
pub(crate) trait Discard {
    /// Makes the kernel discard unsent bytes when the stream is dropped.
    fn discard_unsent(&self);
}

impl Discard for TcpStream {
    fn discard_unsent(&self) {
        // Fails on a closed connection, which has no unsent bytes.
        let _ = self.set_zero_linger();
    }
}

/// A stream that fails writes when the other end does not take them.
#[derive(Debug)]
pub(crate) struct StallGuard<S: Discard> {
    stream: S,
    rule: ProgressRule,
    /// Set from the first write that had to wait until all bytes are written.
    backlog: Option<Backlog>,
}

#[derive(Debug)]
struct Backlog {
    counted_from: Instant,
    counted_bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Backlog {
    fn new(rule: &ProgressRule) -> Self {
        let now = Instant::now();
        let deadline = now + rule.stalled_after.min(rule.least_bytes_within);
        Self { counted_from: now, counted_bytes: 0, deadline: Box::pin(sleep_until(deadline)) }
    }

    fn record_written(&mut self, bytes: usize, rule: &ProgressRule) {
        let now = Instant::now();
        self.counted_bytes += bytes;
        if self.counted_bytes >= rule.least_bytes {
            (self.counted_from, self.counted_bytes) = (now, 0);
        }
        let deadline = (now + rule.stalled_after).min(self.counted_from + rule.least_bytes_within);
        self.deadline.as_mut().reset(deadline);
    }
}

impl<S: Discard> StallGuard<S> {
    pub(crate) fn new(stream: S, rule: ProgressRule) -> Self {
        Self { stream, rule, backlog: None }
    }

    /// Counts the bytes that a write took, and fails a write that waits too long.
    fn check_stall(&mut self, context: &mut Context<'_>, taken: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &taken {
            Poll::Ready(Ok(bytes)) => {
                if let Some(backlog) = &mut self.backlog {
                    backlog.record_written(*bytes, &self.rule);
                }
                taken
            }
            Poll::Ready(Err(_)) => taken,
            Poll::Pending => {
                let backlog = self.backlog.get_or_insert_with(|| Backlog::new(&self.rule));
                let stalled = || io::Error::new(io::ErrorKind::TimedOut, "the client does not read its response");
                backlog.deadline.as_mut().poll(context).map(|()| Err(stalled()))
            }
        }
    }
}

impl<S: Discard> Drop for StallGuard<S> {
    fn drop(&mut self) {
        if self.backlog.is_some() {
            self.stream.discard_unsent();
        }
    }
}

impl<S: AsyncRead + Discard + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Discard + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_stall(context, taken)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_stall(context, taken)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A complete flush means that nothing waits any more.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.backlog = None;
        }
        self.check_stall(context, flushed.map_ok(|()| 0)).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check_stall(context, shut.map_ok(|()| 0)).map_ok(|_| ())
    }
}

#[cfg(test)]
impl Discard for tokio::io::DuplexStream {
    fn discard_unsent(&self) {}
}

#[cfg(test)]
mod tests;
