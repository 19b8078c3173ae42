//! Reads newline-delimited JSON from a body, with a bound on every line and on the rate of lines and bytes.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use gpuaas_wire::bounds::{Bounded, one_line};
use http_body::Body;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::error::ChannelError;

/// Window over which the rate is limited.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Lines and bytes that are read per second; a faster sender is slowed down by flow control.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    lines: u32,
    bytes: usize,
}

impl Rate {
    /// For unit reports and task lines, of which only the newest matters: far more than a working agent sends, a negligible load to read.
    pub(crate) const REPORTS: Self = Self { lines: 256, bytes: 2 * 1_024 * 1_024 };
    /// For journals, of which a user reads every line: as much as a terminal takes, for each of many journals at once.
    pub(crate) const JOURNALS: Self = Self { lines: 100_000, bytes: 16 * 1_024 * 1_024 };
}

/// Longest description of an invalid line, in bytes; it may quote from the line.
const ERROR_BYTES_MAX: usize = 256;

/// Streams the lines of `body` as values within bounds. Ends with an error when the body breaks off, a line is unterminated or more than
/// `line_bytes_max` bytes of it are buffered. Yields an error for each line that is invalid.
pub(crate) fn lines<T, B>(
    body: B,
    line_bytes_max: usize,
    rate: Rate,
) -> impl Stream<Item = Result<T, ChannelError>> + Send
where
    T: DeserializeOwned + Bounded + Send + 'static,
    B: Body<Data = Bytes, Error: std::fmt::Display> + Send + Unpin + 'static,
{
    let window = RateWindow { rate, lines: 0, bytes: 0, since: Instant::now() };
    let state = State { body: Some(body), buffer: Buffer::default(), window };
    stream::unfold(state, move |mut state| async move {
        state.window.wait().await;
        let item = state.next(line_bytes_max).await?;
        state.window.count(item.as_ref().map_or(0, Bytes::len));
        Some((item, state))
    })
    .map(|line| line.and_then(|line| parse(&line)))
}

/// Parses a value from JSON and checks its bounds.
pub(crate) fn parse<T: DeserializeOwned + Bounded>(json: &[u8]) -> Result<T, ChannelError> {
    let wrong = |error: &dyn std::fmt::Display| ChannelError::Protocol(one_line(error.to_string(), ERROR_BYTES_MAX));
    let value: T = serde_json::from_slice(json).map_err(|error| wrong(&error))?;
    value.within_bounds().map_err(|error| wrong(&error))
}

struct State<B> {
    body: Option<B>,
    buffer: Buffer,
    window: RateWindow,
}

impl<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin> State<B> {
    async fn next(&mut self, line_bytes_max: usize) -> Option<Result<Bytes, ChannelError>> {
        loop {
            if let Some(line) = self.buffer.line() {
                return Some(Ok(line));
            }
            if self.buffer.bytes.len() > line_bytes_max {
                self.body = None;
                self.buffer = Buffer::default();
                return Some(Err(ChannelError::Protocol("a line is longer than the maximum".to_owned())));
            }
            let frame = self.body.as_mut()?.frame().await;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.bytes.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    self.body = None;
                    return Some(Err(ChannelError::Lost(error.to_string())));
                }
                None => {
                    self.body = None;
                    if !self.buffer.bytes.is_empty() {
                        self.buffer = Buffer::default();
                        return Some(Err(ChannelError::Protocol("the stream ended within a line".to_owned())));
                    }
                }
            }
        }
    }
}

/// Bytes that were received and not yet returned as lines.
#[derive(Default)]
struct Buffer {
    bytes: BytesMut,
    /// Number of leading bytes that are known to contain no newline; they are not searched again.
    searched: usize,
}

impl Buffer {
    /// Returns the next line if all of it has arrived.
    fn line(&mut self) -> Option<Bytes> {
        let Some(end) = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let line = self.bytes.split_to(self.searched + end).freeze();
        self.bytes.advance(1);
        self.searched = 0;
        Some(line)
    }
}

/// Enforces a [`Rate`]. No [`gpuaas_model::RateLimiter`]: an event here has a length, which is known only after it was read.
struct RateWindow {
    rate: Rate,
    lines: u32,
    bytes: usize,
    since: Instant,
}

impl RateWindow {
    /// Waits for the next window if this window's lines or bytes are used up.
    async fn wait(&mut self) {
        if self.lines >= self.rate.lines || self.bytes >= self.rate.bytes {
            tokio::time::sleep_until(self.since + RATE_WINDOW).await;
        }
        if self.since.elapsed() >= RATE_WINDOW {
            (self.lines, self.bytes, self.since) = (0, 0, Instant::now());
        }
    }

    fn count(&mut self, bytes: usize) {
        (self.lines, self.bytes) = (self.lines + 1, self.bytes + bytes);
    }
}

#[cfg(test)]
mod hostile_tests {
    use std::convert::Infallible;

    use gpuaas_wire::session::{JournalLine, LINE_BYTES_MAX};
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn body(frames: Vec<Bytes>) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static {
        StreamBody::new(stream::iter(frames.into_iter().map(|bytes| Ok(Frame::data(bytes)))))
    }

    fn line(text: &str) -> Bytes {
        Bytes::from(format!("{{\"at\":1,\"text\":\"{text}\"}}\n"))
    }

    #[tokio::test]
    async fn line_received_byte_by_byte_is_searched_once() {
        let long = line(&"x".repeat(LINE_BYTES_MAX / 2));
        let mut buffer = Buffer::default();
        for at in 0..long.len() - 1 {
            buffer.bytes.extend_from_slice(&long[at..=at]);
            assert_eq!(buffer.line(), None);
            assert_eq!(buffer.searched, at + 1, "received bytes are searched once");
        }
        buffer.bytes.extend_from_slice(b"\n{}\n");
        assert_eq!(buffer.line().map(|line| line.len()), Some(long.len() - 1));
        assert_eq!(buffer.line(), Some(Bytes::from_static(b"{}")));
        let frames = long.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
        let began = Instant::now();
        let read = lines::<JournalLine, _>(body(frames), LINE_BYTES_MAX, Rate::JOURNALS).collect::<Vec<_>>().await;
        assert!(matches!(read[..], [Ok(_)]));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn endless_line_ends_the_stream() {
        let endless = vec![Bytes::from(vec![b'x'; 64 * 1_024]); 64];
        let read = lines::<JournalLine, _>(body(endless), LINE_BYTES_MAX, Rate::JOURNALS).collect::<Vec<_>>().await;
        let too_long = ChannelError::Protocol("a line is longer than the maximum".to_owned());
        assert_eq!(read, [Err(too_long)]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_or_long_lines_are_read_at_the_configured_rate() {
        let rate = Rate { lines: 256, bytes: 64 * 1_024 };
        for (flood, of) in [(vec![line("x"); 600], 600), (vec![line(&"x".repeat(32 * 1_024)); 5], 5)] {
            let began = Instant::now();
            let read = lines::<JournalLine, _>(body(flood), LINE_BYTES_MAX, rate).count().await;
            assert_eq!((read, began.elapsed().as_secs()), (of, 2), "one second's amount at once, then one per second");
        }
    }

    #[tokio::test]
    async fn parse_error_omits_the_text_of_the_node() {
        let forged = Bytes::from(format!("{{\"outcome\":\"\\u001b[2J{}\"}}\n", "x".repeat(100_000)));
        let wrong = parse::<gpuaas_wire::task::TaskOutcome>(&forged).expect_err("an unknown outcome must be refused");
        let message = wrong.to_string();
        assert!(
            message.contains("unknown variant") && message.len() < 400 && !message.contains('\u{1b}'),
            "{message:?}"
        );
    }
}
