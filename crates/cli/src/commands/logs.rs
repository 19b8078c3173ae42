//! Implements `gpuaas workload logs`.

use std::{collections::BTreeMap, str::FromStr};

use clap_complete::ArgValueCandidates;
use futures::{StreamExt, stream::BoxStream};
use gpuaas_api_types::WorkloadLogLine;
use gpuaas_client::{Client, ClientError, WorkloadLogOptions};
use gpuaas_model::{LogSource, visible};
use jiff::Timestamp;

use super::following::reopened;
use crate::{
    completion, output,
    target::{Format, Target},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    /// Name of a member whose journal to print, for example agent-2; can be repeated; default: all members
    #[arg(long = "member", value_name = "MEMBER", add = ArgValueCandidates::new(completion::members))]
    members: Vec<String>,
    /// Source to print: journal, task (progress and ends of tasks) or event; can be repeated; default: all
    #[arg(long = "source", value_name = "SOURCE", value_parser = LogSource::from_str)]
    sources: Vec<LogSource>,
    /// Only lines at or after this time: a duration before now such as 10m, or a time such as 2026-07-01T08:00:00Z; default: no limit
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse_time)]
    since: Option<Timestamp>,
    /// Only this many of the last lines of all sources together, at most 10000; default: 100, or no limit with --since
    #[arg(long, visible_alias = "limit", value_name = "LINES", value_parser = crate::values::number::<u32>)]
    tail: Option<u32>,
    /// systemd unit to read, of the members that have it; default: the main unit of each member
    #[arg(long)]
    unit: Option<String>,
    /// Keep printing new lines as they are written
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn run(client: &Client, target: &Target, arguments: Logs) -> anyhow::Result<()> {
    let options = WorkloadLogOptions {
        members: arguments.members,
        unit: arguments.unit,
        sources: arguments.sources.iter().map(ToString::to_string).collect(),
        since: arguments.since.map(|since| since.to_string()),
        tail: arguments.tail,
        follow: arguments.follow,
        ..WorkloadLogOptions::default()
    };
    let mut follower = LogFollower::start(client, target.project.clone(), &arguments.workload, options).await?;
    while let Some(line) = follower.next().await? {
        match target.output {
            Format::Table | Format::Wide => output::line(visible(&shown(&line)))?,
            Format::Name => output::line(visible(&line.text))?,
            Format::Json | Format::Yaml | Format::JsonPath(_) => output::record(target.output, &line)?,
        }
    }
    Ok(())
}

/// Formats a line for people: time, source and text.
fn shown(line: &WorkloadLogLine) -> String {
    let next = line.next.as_ref().map(|next| format!("; {next}")).unwrap_or_default();
    format!("{} {}: {}{next}", line.at, line.origin(), line.text)
}

/// The logs of a workload across broken connections: continues each journal and the events after the last received line.
struct LogFollower<'a> {
    client: &'a Client,
    project: Option<String>,
    workload: &'a str,
    received: Received,
    stream: BoxStream<'static, Result<WorkloadLogLine, ClientError>>,
}

/// What was asked for, and what was received of it.
struct Received {
    options: WorkloadLogOptions,
    /// Time of the first line.
    first: Option<String>,
    /// Position after the last line of each journal.
    positions: BTreeMap<String, String>,
    /// Number of the last event.
    event: Option<u64>,
}

impl<'a> LogFollower<'a> {
    async fn start(
        client: &'a Client,
        project: Option<String>,
        workload: &'a str,
        options: WorkloadLogOptions,
    ) -> Result<Self, ClientError> {
        let stream = open(client, project.clone(), workload, &options).await?;
        Ok(Self { client, project, workload, received: Received::new(options), stream })
    }

    /// Returns the next line; `None` at the end of logs that are not followed. Fails if the control plane stays unreachable.
    async fn next(&mut self) -> Result<Option<WorkloadLogLine>, ClientError> {
        loop {
            match self.stream.next().await {
                Some(Ok(line)) => {
                    self.received.note(&line);
                    return Ok(Some(line));
                }
                None if !self.received.options.follow => return Ok(None),
                Some(Err(ClientError::Interrupted(_) | ClientError::Unreachable { .. })) | None => {
                    let options = self.received.remaining();
                    let again = async || open(self.client, self.project.clone(), self.workload, &options).await;
                    self.stream = reopened(again).await?;
                }
                Some(Err(error)) => return Err(error),
            }
        }
    }
}

impl Received {
    fn new(options: WorkloadLogOptions) -> Self {
        Self { options, first: None, positions: BTreeMap::new(), event: None }
    }

    fn note(&mut self, line: &WorkloadLogLine) {
        self.first.get_or_insert_with(|| line.at.clone());
        if let Some((member, position)) = line.member.as_ref().zip(line.position.as_ref()) {
            self.positions.insert(member.clone(), position.clone());
        }
        self.event = line.sequence.or(self.event);
    }

    /// Returns what to ask for after a broken connection. A journal without a received line begins at the first line of the others: if it
    /// had lines from that time on, they would have been received.
    fn remaining(&self) -> WorkloadLogOptions {
        let Some(first) = &self.first else { return self.options.clone() };
        WorkloadLogOptions {
            since: self.options.since.clone().or_else(|| Some(first.clone())),
            tail: None,
            resume: self.positions.iter().map(|(member, position)| (member.clone(), position.clone())).collect(),
            after_event: self.event,
            ..self.options.clone()
        }
    }
}

async fn open(
    client: &Client,
    project: Option<String>,
    workload: &str,
    options: &WorkloadLogOptions,
) -> Result<BoxStream<'static, Result<WorkloadLogLine, ClientError>>, ClientError> {
    // Fused, because a stream that has ended is asked again after a failed reconnection.
    Ok(client.read_workload_logs(project, workload, options).await?.fuse().boxed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: &str, member: Option<&str>, position: Option<&str>, sequence: Option<u64>) -> WorkloadLogLine {
        WorkloadLogLine {
            at: at.to_owned(),
            source: "journal".to_owned(),
            member: member.map(str::to_owned),
            position: position.map(str::to_owned),
            sequence,
            ..WorkloadLogLine::default()
        }
    }

    #[test]
    fn after_a_broken_connection_every_source_continues_after_its_last_line() {
        let asked = WorkloadLogOptions { tail: Some(5), follow: true, ..WorkloadLogOptions::default() };
        let mut received = Received::new(asked.clone());
        assert_eq!(received.remaining(), asked, "nothing was received");
        for line in [
            line("T1", Some("agent-1"), Some("T1/1"), None),
            line("T2", Some("agent-2"), Some("T2/1"), None),
            line("T3", None, None, Some(7)),
            line("T4", Some("agent-1"), Some("T4/2"), None),
            line("T5", Some("agent-3"), None, None),
        ] {
            received.note(&line);
        }
        let positions = [("agent-1", "T4/2"), ("agent-2", "T2/1")];
        let expected = WorkloadLogOptions {
            since: Some("T1".to_owned()),
            tail: None,
            follow: true,
            resume: positions.map(|(member, position)| (member.to_owned(), position.to_owned())).to_vec(),
            after_event: Some(7),
            ..WorkloadLogOptions::default()
        };
        assert_eq!(received.remaining(), expected);
    }

    #[test]
    fn hostile_text_is_escaped_on_a_terminal() {
        let hostile = WorkloadLogLine { text: "\u{1b}[2J".to_owned(), ..line("T1", Some("agent-1"), None, None) };
        assert!(!visible(&shown(&hostile)).contains('\u{1b}'));
    }
}
