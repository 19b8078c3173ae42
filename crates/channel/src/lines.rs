//! Reads newline-delimited JSON from a body, with a bound on every line.

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::channel::ChannelError;

/// The lines of `body` as values. Ends with an error when the body breaks, a line is longer than `line_bytes_max`, or one is not what
/// it must be.
pub(crate) fn lines<T: DeserializeOwned + Send + 'static>(
    body: Incoming,
    line_bytes_max: usize,
) -> impl Stream<Item = Result<T, ChannelError>> + Send {
    let state = State { body: Some(body), buffer: BytesMut::new() };
    stream::unfold(state, move |mut state| async move {
        let item = state.next(line_bytes_max).await?;
        Some((item, state))
    })
    .map(|line| {
        line.and_then(|line| serde_json::from_slice(&line).map_err(|error| ChannelError::Protocol(error.to_string())))
    })
}

struct State {
    body: Option<Incoming>,
    buffer: BytesMut,
}

impl State {
    async fn next(&mut self, line_bytes_max: usize) -> Option<Result<Bytes, ChannelError>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line = self.buffer.split_to(end).freeze();
                self.buffer.advance(1);
                return Some(Ok(line));
            }
            if self.buffer.len() > line_bytes_max {
                self.body = None;
                self.buffer.clear();
                return Some(Err(ChannelError::Protocol("a line is longer than is allowed".to_owned())));
            }
            let frame = self.body.as_mut()?.frame().await;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    self.body = None;
                    return Some(Err(ChannelError::Lost(error.to_string())));
                }
                None => {
                    self.body = None;
                    if !self.buffer.is_empty() {
                        self.buffer.clear();
                        return Some(Err(ChannelError::Protocol("the last line has no end".to_owned())));
                    }
                }
            }
        }
    }
}
