//! Journals of members, and the merged logs of workloads.

use futures::{Stream, stream};
use gpuaas_api_types::{LogLine, WorkloadLogLine};
use http::Method;
use serde::de::DeserializeOwned;

use crate::{error::ClientError, escape::escaped, lines::Pieces, operations::query, transport::Client};

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

/// Selects lines of a workload's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadLogOptions {
    /// Names of the members whose journals are read; all members if empty.
    pub members: Vec<String>,
    /// The unit to read, of the members that have it. Defaults to the main unit of each.
    pub unit: Option<String>,
    /// `journal`, `task` and `event`; all of them if empty.
    pub sources: Vec<String>,
    /// Return lines at or after this time only; RFC 3339.
    pub since: Option<String>,
    /// Return this many last lines.
    pub tail: Option<u32>,
    /// Continue with new lines.
    pub follow: bool,
    /// Members, each with the `position` of the last received line of its journal, after which the journal is continued.
    pub resume: Vec<(String, String)>,
    /// The `sequence` of the last received event, after which the events are continued.
    pub after_event: Option<u64>,
}

impl WorkloadLogOptions {
    fn query(&self, project: Option<String>) -> String {
        let listed = |values: &[String]| (!values.is_empty()).then(|| values.join(","));
        let resume: Vec<String> = self.resume.iter().map(|(member, position)| format!("{member}={position}")).collect();
        query(&[
            ("project", project),
            ("member", listed(&self.members)),
            ("unit", self.unit.clone()),
            ("source", listed(&self.sources)),
            ("since", self.since.clone()),
            ("tail", self.tail.map(|lines| lines.to_string())),
            ("follow", self.follow.then(|| "true".to_owned())),
            ("resume", listed(&resume)),
            ("after_event", self.after_event.map(|number| number.to_string())),
        ])
    }
}

impl Client {
    /// Streams the merged logs of a workload, line by line. With `follow`, the stream ends with the connection; the caller continues with
    /// the positions and the event number that it received last.
    pub async fn read_workload_logs(
        &self,
        project: Option<String>,
        workload: &str,
        options: &WorkloadLogOptions,
    ) -> Result<impl Stream<Item = Result<WorkloadLogLine, ClientError>> + Send + use<>, ClientError> {
        let path = format!("/api/v1/workloads/{}/logs{}", escaped(workload), options.query(project));
        self.lines(&path).await
    }

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
        self.lines(&path).await
    }

    /// Streams a response of one JSON document per line.
    async fn lines<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<T, ClientError>> + Send + use<T>, ClientError> {
        let response = self.send(Method::GET, path, None::<&()>, "application/x-ndjson").await?;
        Ok(stream::unfold(Pieces::new(response.into_body(), b"\n"), |mut lines| async move {
            let line = lines.next().await?.and_then(|line| {
                serde_json::from_slice(&line).map_err(|error| ClientError::InvalidResponse(error.to_string()))
            });
            Some((line, lines))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_separated_by_commas_and_escaped() {
        let options = WorkloadLogOptions {
            members: vec!["agent-1".into(), "agent-2".into()],
            resume: vec![("agent-1".into(), "2026-07-01T08:00:00.000Z/2".into())],
            after_event: Some(7),
            ..WorkloadLogOptions::default()
        };
        let expected =
            "?member=agent-1%2Cagent-2&resume=agent-1%3D2026-07-01T08%3A00%3A00.000Z%2F2&after_event=7".to_owned();
        assert_eq!(options.query(None), expected);
    }
}
