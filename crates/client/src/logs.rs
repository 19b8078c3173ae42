//! Reading members' journals.

use futures::{Stream, stream};
use gpuaas_api_types::LogLine;
use http::Method;

use crate::{
    error::ClientError,
    lines::Pieces,
    operations::{escaped, query},
    transport::Client,
};

/// Which lines of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAsk {
    /// One of the member's units; its main one when absent.
    pub unit: Option<String>,
    /// Only of the last so many seconds.
    pub since_seconds: Option<u64>,
    /// At most so many of the last lines.
    pub tail: Option<u32>,
    /// Go on with new lines.
    pub follow: bool,
}

impl Client {
    /// A member's journal, line by line. With `follow` it ends when the connection does.
    pub async fn read_logs(
        &self,
        project: Option<String>,
        workload: &str,
        member: &str,
        ask: &LogAsk,
    ) -> Result<impl Stream<Item = Result<LogLine, ClientError>> + Send + use<>, ClientError> {
        let query = query(&[
            ("project", project),
            ("unit", ask.unit.clone()),
            ("since_seconds", ask.since_seconds.map(|seconds| seconds.to_string())),
            ("tail", ask.tail.map(|lines| lines.to_string())),
            ("follow", ask.follow.then(|| "true".to_owned())),
        ]);
        let path = format!("/api/v1/workloads/{}/members/{}/logs{query}", escaped(workload), escaped(member));
        let response = self.send(Method::GET, &path, None::<&()>, "application/x-ndjson").await?;
        Ok(stream::unfold(Pieces::new(response.into_body(), b"\n"), |mut lines| async move {
            let line = lines
                .next()
                .await?
                .and_then(|line| serde_json::from_slice(&line).map_err(|error| ClientError::Answer(error.to_string())));
            Some((line, lines))
        }))
    }
}
