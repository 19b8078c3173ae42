//! Implements `gpuaas audit`.

use std::time::Duration;

use clap::Subcommand;
use gpuaas_api_types::AuditEntry;
use gpuaas_client::Client;
use serde_json::Value;

use crate::{cli::Target, output};

/// Characters of a record's metadata in a table cell; `-o json` prints all of it.
const DETAIL_CHARS_MAX: usize = 120;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List audit records, oldest first
    ///
    /// TOKEN is the end of the id of the token that acted, because several tokens can have the same name. It is empty if a node or the
    /// control plane itself acted. `-o json` has the whole id, and that of the service account.
    List {
        /// Only records about this target, for example node/gpu-07
        #[arg(long)]
        target: Option<String>,
        /// Only records of this action, for example task.dispatch
        #[arg(long)]
        action: Option<String>,
        /// Only records newer than this, for example 1h
        #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
        since: Option<Duration>,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let Verb::List { target: about, action, since } = verb;
    let since_seconds = since.map(|since| since.as_secs());
    let (mut records, mut after) = (Vec::new(), 0);
    loop {
        let page = client.list_audit(about.clone(), action.clone(), since_seconds, after).await?;
        records.extend(page.items);
        match page.next_cursor.and_then(|cursor| cursor.parse().ok()) {
            Some(next) => after = next,
            None => break,
        }
    }
    let header = ["SEQ", "AT", "ACTOR", "TOKEN", "ACTION", "TARGET", "RESULT", "CORRELATION", "DETAIL"];
    output::list(target.output, &records, &header, row, |record| record.sequence.to_string())
}

fn row(record: &AuditEntry) -> Vec<String> {
    vec![
        record.sequence.to_string(),
        record.at.clone(),
        record.actor.clone(),
        record.actor_id.as_deref().map(last_group).unwrap_or_default().to_owned(),
        record.action.clone(),
        record.target.clone(),
        record.result.clone(),
        record.correlation_id.clone().unwrap_or_default(),
        detail(&record.metadata),
    ]
}

/// Returns the last group of an id. It is random; the first groups of ids made at the same time are equal.
fn last_group(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

/// Formats the metadata's strings and numbers, cut to [`DETAIL_CHARS_MAX`].
fn detail(metadata: &Value) -> String {
    let fields = metadata.as_object().into_iter().flatten();
    let plain = fields.filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name}={text}")),
        Value::Number(number) => Some(format!("{name}={number}")),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let all = plain.collect::<Vec<_>>().join(" ");
    all.chars().take(DETAIL_CHARS_MAX).collect()
}
