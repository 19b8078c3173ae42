//! Event streams.

use futures::{Stream, stream};
use gpuaas_api_types::Event;
use http::Method;

use crate::{error::ClientError, lines::Pieces, operations::query, transport::Client};

impl Client {
    /// Streams events after number `after`, then new ones. The stream ends with the connection; the caller resumes after the last received
    /// event.
    pub async fn follow_events(
        &self,
        project: Option<String>,
        after: u64,
    ) -> Result<impl Stream<Item = Result<Event, ClientError>> + Send + use<>, ClientError> {
        self.events(&query(&[("project", project), ("after", Some(after.to_string()))])).await
    }

    /// Streams new events. No event that is committed after this method returns is missed.
    pub async fn follow_new_events(
        &self,
        project: Option<String>,
    ) -> Result<impl Stream<Item = Result<Event, ClientError>> + Send + use<>, ClientError> {
        self.events(&query(&[("project", project), ("from_now", Some("true".to_owned()))])).await
    }

    async fn events(
        &self,
        query: &str,
    ) -> Result<impl Stream<Item = Result<Event, ClientError>> + Send + use<>, ClientError> {
        let path = format!("/api/v1/events{query}");
        let response = self.send(Method::GET, &path, None::<&()>, "text/event-stream").await?;
        Ok(stream::unfold(Pieces::new(response.into_body(), b"\n\n"), |mut blocks| async move {
            loop {
                match blocks.next().await? {
                    // A block without data is a comment that keeps the connection open.
                    Ok(block) => {
                        let Some(json) = data(&block) else { continue };
                        let event = serde_json::from_str(&json)
                            .map_err(|error| ClientError::InvalidResponse(error.to_string()));
                        return Some((event, blocks));
                    }
                    Err(error) => return Some((Err(error), blocks)),
                }
            }
        }))
    }
}

/// Returns the `data` lines of an event block, joined as the SSE standard requires.
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
    fn data_lines_are_extracted_and_comments_ignored() {
        assert_eq!(data(b"id: 4\ndata: {\"a\":\ndata: 1}\n\n").as_deref(), Some("{\"a\":\n1}"));
        assert_eq!(data(b": keep-alive\n\n"), None);
    }
}
