//! Response bodies that a client must take in time.
//!
//! Guarantees: a connection gets a response in pieces, each once it has space for it. While responses wait for space, one of them
//! progresses every [`STALLED_AFTER`], and each of them within [`LEAST_BYTES_WITHIN`]; otherwise the connection counts as stalled. This
//! covers HTTP/2 clients that read their connection but open no window. A response that has no data at the moment does not count as
//! waiting.

use std::{
    collections::HashMap,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use gpuaas_api::RequestGuard;
use gpuaas_channel::BusyGuard;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::progress::{LEAST_BYTES_WITHIN, STALLED_AFTER};

/// Bytes of a response that its connection gets at once: the size of a TLS record.
const PIECE_BYTES: usize = 16 * 1_024;

/// The responses of one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Responses(watch::Sender<ResponseState>);

#[derive(Debug)]
struct ResponseState {
    last_number: u64,
    /// When a response last progressed.
    progressed_at: Instant,
    /// Responses that wait for space, with the time since when each waits.
    waiting: HashMap<u64, Instant>,
}

impl ResponseState {
    /// Returns when the connection counts as stalled unless a response progresses.
    fn deadline(&self) -> Instant {
        let of_each = self.waiting.values().min().map(|since| *since + LEAST_BYTES_WITHIN);
        let of_all = self.progressed_at + STALLED_AFTER;
        of_each.map_or(of_all, |of_each| of_each.min(of_all))
    }
}

impl Default for Responses {
    fn default() -> Self {
        Self(watch::Sender::new(ResponseState {
            last_number: 0,
            progressed_at: Instant::now(),
            waiting: HashMap::new(),
        }))
    }
}

impl Responses {
    /// Wraps a response body. It keeps its connection busy until the client has taken all of it.
    pub(crate) fn track(&self, body: Body, guards: (BusyGuard, RequestGuard)) -> TrackedBody {
        let mut number = 0;
        self.0.send_modify(|state| {
            state.last_number += 1;
            number = state.last_number;
        });
        self.start_waiting(number);
        TrackedBody {
            body,
            remaining: Bytes::new(),
            has_sent_data: false,
            number,
            responses: self.clone(),
            _guards: guards,
        }
    }

    /// Completes when the connection is stalled: the client does not take its responses.
    pub(crate) async fn stalled(&self) {
        let mut states = self.0.subscribe();
        loop {
            let waiting = states.wait_for(|state| !state.waiting.is_empty()).await;
            // Cannot fail: `self` holds the sender.
            let Ok(deadline) = waiting.map(|state| state.deadline()) else { return };
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    fn start_waiting(&self, number: u64) {
        let now = Instant::now();
        self.0.send_if_modified(|under_way| {
            let is_first = under_way.waiting.is_empty();
            if is_first {
                under_way.progressed_at = now;
            }
            under_way.waiting.insert(number, now);
            is_first
        });
    }

    fn record_progress(&self, number: u64) {
        self.0.send_if_modified(|under_way| {
            under_way.waiting.remove(&number);
            under_way.progressed_at = Instant::now();
            false
        });
    }
}

/// A response body that reports its progress.
pub(crate) struct TrackedBody {
    body: Body,
    /// The rest of the body's last data frame that is not handed on yet.
    remaining: Bytes,
    has_sent_data: bool,
    number: u64,
    responses: Responses,
    _guards: (BusyGuard, RequestGuard),
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.responses.record_progress(self.number);
        if self.remaining.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.remaining = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        self.has_sent_data = true;
        let bytes = self.remaining.len().min(PIECE_BYTES);
        let piece = self.remaining.split_to(bytes);
        self.responses.start_waiting(self.number);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Never true once data was sent: hyper then polls for the end, which shows that the last piece was taken.
    fn is_end_stream(&self) -> bool {
        !self.has_sent_data && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (remaining, of_body) = (self.remaining.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + remaining);
        }
        hint.set_lower(of_body.lower() + remaining);
        hint
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.responses.record_progress(self.number);
    }
}
