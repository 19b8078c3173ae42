//! A tunnel that ends with the access to its node.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use crate::access_registry::{AccessGuard, AccessState};
use crate::effects::Tunnel;

/// A tunnel that carries nothing while access is undecided, and fails with `ConnectionAborted` once access is lost.
pub(crate) struct GuardedTunnel {
    inner: Box<dyn Tunnel>,
    present: AccessState,
    next: BoxFuture<'static, watch::Receiver<AccessState>>,
    _guard: AccessGuard,
}

impl GuardedTunnel {
    pub(crate) fn new(inner: Box<dyn Tunnel>, held: AccessGuard) -> Self {
        let mut state = held.state.clone();
        let present = *state.borrow_and_update();
        Self { inner, present, next: next_state(state), _guard: held }
    }

    /// Ready while the tunnel may carry bytes; wakes the task when access changes.
    fn poll_granted(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.present != AccessState::Lost
            && let Poll::Ready(mut state) = self.next.poll_unpin(context)
        {
            self.present = *state.borrow_and_update();
            self.next = next_state(state);
        }
        match self.present {
            AccessState::Granted => Poll::Ready(Ok(())),
            AccessState::Undecided => Poll::Pending,
            AccessState::Lost => Poll::Ready(Err(std::io::Error::new(
                std::io::ErrorKind::ConnectionAborted,
                "the project no longer holds the node",
            ))),
        }
    }
}

fn next_state(mut state: watch::Receiver<AccessState>) -> BoxFuture<'static, watch::Receiver<AccessState>> {
    async move {
        // The sender lives as long as the entry, which lives as long as the tunnel.
        let _ = state.changed().await;
        state
    }
    .boxed()
}

impl AsyncRead for GuardedTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_granted(context))?;
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl AsyncWrite for GuardedTunnel {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_granted(context))?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_granted(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
