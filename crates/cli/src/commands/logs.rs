//! Implements `gpuaas workload logs`.

use std::time::Duration;

use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use gpuaas_client::{Client, ClientError, LogOptions};

use crate::{
    completion, output,
    target::{Format, Target},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// Name or id of the workload
    #[arg(add = ArgValueCandidates::new(completion::workloads))]
    workload: String,
    /// Name of the member, for example agent-2; may be omitted if the workload has only one
    #[arg(long, add = ArgValueCandidates::new(completion::members))]
    member: Option<String>,
    /// Only lines newer than this, for example 10m; default: no limit
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    since: Option<Duration>,
    /// Only this many of the last lines, at most 10000; default: 100, or no limit with --since
    #[arg(long, value_name = "LINES", value_parser = crate::values::number::<u32>)]
    tail: Option<u32>,
    /// systemd unit of the member to read; default: its main unit
    #[arg(long)]
    unit: Option<String>,
    /// Keep printing new lines as they are written
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn run(client: &Client, target: &Target, arguments: Logs) -> anyhow::Result<()> {
    let member = match arguments.member {
        Some(member) => member,
        None => only_member(client, target, &arguments.workload).await?,
    };
    let since_seconds = arguments.since.map(|since| since.as_secs());
    let options = LogOptions { unit: arguments.unit, since_seconds, tail: arguments.tail, follow: arguments.follow };
    let mut lines = Box::pin(client.read_logs(target.project.clone(), &arguments.workload, &member, &options).await?);
    while let Some(line) = lines.next().await {
        let line = line?;
        match target.output {
            Format::Table | Format::Wide => output::line(format_args!("{} {}", line.at, line.text))?,
            Format::Name => output::line(&line.text)?,
            Format::Json | Format::Yaml | Format::JsonPath(_) => output::record(target.output, &line)?,
        }
    }
    Ok(())
}

async fn only_member(client: &Client, target: &Target, workload: &str) -> anyhow::Result<String> {
    let members = client.list_members(target.project.clone(), workload).await?.items;
    let present: Vec<_> =
        members.into_iter().filter(|member| member.state != "removed").map(|member| member.name).collect();
    match present.as_slice() {
        [only] => Ok(only.clone()),
        several => {
            Err(ClientError::InvalidSetting(format!("--member is required; members: {}", several.join(", "))).into())
        }
    }
}
