//! Journals of members.

use futures::{Stream, stream};
use gpuaas_api_types::LogLine;
use http::Method;

use crate::{
    error::ClientError,
    lines::Pieces,
    operations::{escaped, query},
    transport::Client,
};

/// Selects lines of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// One of the member's units. Defaults to its main unit.
    pub unit: Option<String>,
    /// Return lines of this many last seconds only.
    pub since_seconds: Option<u64>,
    /// Return this many last lines.
    pub tail: Option<u32>,
    /// Continue with new lines.
    pub follow: bool,
}

impl Client {
    /// Streams the journal of a member, line by line. With `follow`, the stream ends with the connection.
    pub async fn read_logs(
        &self,
        project: Option<String>,
        workload: &str,
        member: &str,
        options: &LogOptions,
    ) -> Result<impl Stream<Item = Result<LogLine, ClientError>> + Send + use<>, ClientError> {
        let query = query(&[
            ("project", project),
            ("unit", options.unit.clone()),
            ("since_seconds", options.since_seconds.map(|seconds| seconds.to_string())),
            ("tail", options.tail.map(|lines| lines.to_string())),
            ("follow", options.follow.then(|| "true".to_owned())),
        ]);
        let path = format!("/api/v1/workloads/{}/members/{}/logs{query}", escaped(workload), escaped(member));
        let response = self.send(Method::GET, &path, None::<&()>, "application/x-ndjson").await?;
        Ok(stream::unfold(Pieces::new(response.into_body(), b"\n"), |mut lines| async move {
            let line = lines.next().await?.and_then(|line| {
                serde_json::from_slice(&line).map_err(|error| ClientError::InvalidResponse(error.to_string()))
            });
            Some((line, lines))
        }))
    }
}
