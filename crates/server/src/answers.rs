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
use gpuaas_api::Begun;
use gpuaas_channel::Busy;
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
pub(crate) struct Answers(watch::Sender<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    begun: u64,
    /// When a response last progressed.
    moved_at: Instant,
    /// Responses that wait for space, with the time since when each waits.
    waiting: HashMap<u64, Instant>,
}

impl UnderWay {
    /// Returns when the connection counts as stalled unless a response progresses.
    fn deadline(&self) -> Instant {
        let of_each = self.waiting.values().min().map(|since| *since + LEAST_BYTES_WITHIN);
        let of_all = self.moved_at + STALLED_AFTER;
        of_each.map_or(of_all, |of_each| of_each.min(of_all))
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self(watch::Sender::new(UnderWay { begun: 0, moved_at: Instant::now(), waiting: HashMap::new() }))
    }
}

impl Answers {
    /// Wraps a response body. It keeps its connection busy until the client has taken all of it.
    pub(crate) fn begin(&self, body: Body, held: (Busy, Begun)) -> Answer {
        let mut number = 0;
        self.0.send_modify(|under_way| {
            under_way.begun += 1;
            number = under_way.begun;
        });
        self.wait(number);
        Answer { body, rest: Bytes::new(), is_begun: false, number, answers: self.clone(), _held: held }
    }

    /// Completes when the connection is stalled: the client does not take its responses.
    pub(crate) async fn stalled(&self) {
        let mut seen = self.0.subscribe();
        loop {
            let waits = seen.wait_for(|under_way| !under_way.waiting.is_empty()).await;
            // Cannot fail: `self` holds the sender.
            let Ok(deadline) = waits.map(|under_way| under_way.deadline()) else { return };
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    fn wait(&self, number: u64) {
        let now = Instant::now();
        self.0.send_if_modified(|under_way| {
            let is_first = under_way.waiting.is_empty();
            if is_first {
                under_way.moved_at = now;
            }
            under_way.waiting.insert(number, now);
            is_first
        });
    }

    fn moved(&self, number: u64) {
        self.0.send_if_modified(|under_way| {
            under_way.waiting.remove(&number);
            under_way.moved_at = Instant::now();
            false
        });
    }
}

/// A response body that reports its progress.
pub(crate) struct Answer {
    body: Body,
    /// The rest of the body's last data frame that is not handed on yet.
    rest: Bytes,
    is_begun: bool,
    number: u64,
    answers: Answers,
    _held: (Busy, Begun),
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.answers.moved(self.number);
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        self.is_begun = true;
        let bytes = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(bytes);
        self.answers.wait(self.number);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Never true once data was sent: hyper then polls for the end, which shows that the last piece was taken.
    fn is_end_stream(&self) -> bool {
        !self.is_begun && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(of_body.lower() + rest);
        hint
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.answers.moved(self.number);
    }
}
