//! Following events.

use futures::{Stream, stream};
use gpuaas_api_types::Event;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{error::ClientError, operations::query, transport::Client};

/// Longest event on the wire, in bytes.
const EVENT_BYTES_MAX: usize = 1_024 * 1_024;

impl Client {
    /// Events behind number `after` and whatever happens from then on. Ends when the connection does: go on behind the last one seen.
    pub async fn follow_events(
        &self,
        project: Option<String>,
        after: u64,
    ) -> Result<impl Stream<Item = Result<Event, ClientError>> + Send + use<>, ClientError> {
        let query = query(&[("project", project), ("after", Some(after.to_string()))]);
        let path = format!("/api/v1/events{query}");
        let response = self.send(Method::GET, &path, None::<&()>, "text/event-stream").await?;
        let reading = Reading { body: response.into_body(), buffer: Vec::new() };
        Ok(stream::unfold(reading, |mut reading| async move {
            let event = reading.next().await?;
            Some((event, reading))
        }))
    }
}

struct Reading {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                match data(&block) {
                    Some(json) => {
                        return Some(
                            serde_json::from_str(&json).map_err(|error| ClientError::Answer(error.to_string())),
                        );
                    }
                    // A comment that keeps the connection.
                    None => continue,
                }
            }
            if self.buffer.len() > EVENT_BYTES_MAX {
                self.buffer.clear();
                return Some(Err(ClientError::Answer("an event is longer than any can be".to_owned())));
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref())),
                Err(error) => return Some(Err(ClientError::Answer(format!("the stream broke: {error}")))),
            }
        }
    }
}

/// The `data` lines of an event's block, joined as the standard says.
fn data(block: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(block);
    let lines: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_among_other_fields_and_comments_hold_none() {
        assert_eq!(data(b"id: 4\ndata: {\"a\":\ndata: 1}\n\n").as_deref(), Some("{\"a\":\n1}"));
        assert_eq!(data(b": keep-alive\n\n"), None);
    }
}
