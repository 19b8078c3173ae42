//! `gpuaas audit`.

use std::time::Duration;

use clap::Subcommand;
use gpuaas_api_types::AuditEntry;
use gpuaas_client::Client;
use serde_json::Value;

use crate::{cli::Target, output};

/// Characters of a record's metadata that a table shows; `-o json` has all of it.
const DETAIL_CHARS_MAX: usize = 120;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List audit records, oldest first
    ///
    /// TOKEN is the end of the id of the token that acted. Several tokens can have one name; an id is unique.
    /// A record without one is of a node or of the control plane itself. `-o json` has the whole id, and that of the service account.
    List {
        /// About this target, for example node/gpu-07
        #[arg(long)]
        target: Option<String>,
        /// Of this action, for example task.dispatch
        #[arg(long)]
        action: Option<String>,
        /// Only this much of the past, for example 1h
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
        record.actor_id.as_deref().map(end_of).unwrap_or_default().to_owned(),
        record.action.clone(),
        record.target.clone(),
        record.result.clone(),
        record.correlation_id.clone().unwrap_or_default(),
        detail(&record.metadata),
    ]
}

/// The last digits of an id, which are by chance: ids made one after another begin alike.
fn end_of(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

/// The metadata's plain values, as far as a line of a table has room for them.
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
