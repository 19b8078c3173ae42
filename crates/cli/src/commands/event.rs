//! Implements `gpuaas event`.

use clap::Subcommand;
use gpuaas_api_types::Event;
use gpuaas_client::Client;

use super::following::{EventFollower, Next};
use crate::{
    output,
    table::{Column, Layout, column, wide},
    target::{Format, Target},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List events of the project if one is chosen, otherwise of the platform
    List {
        /// Only events after this sequence number
        #[arg(long, default_value_t = 0, value_parser = crate::values::number::<u64>)]
        after: u64,
    },
    /// Follow events as they happen; reconnects when the connection breaks
    Watch {
        /// Start after this sequence number; default: only new events
        #[arg(long, value_parser = crate::values::number::<u64>)]
        after: Option<u64>,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { after } => {
            let events = all(client, target, after).await?;
            output::list(target.output, &events, EVENTS, |event| event.sequence.to_string())
        }
        Verb::Watch { after } => watch(client, target, after).await,
    }
}

async fn all(client: &Client, target: &Target, mut after: u64) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let page = client.list_events(target.project.clone(), after).await?;
        events.extend(page.items);
        match page.next_cursor.and_then(|cursor| cursor.parse().ok()) {
            Some(next) => after = next,
            None => return Ok(events),
        }
    }
}

const EVENTS: &[Column<Event>] = &[
    column("SEQ", |event| event.sequence.to_string()),
    column("AT", |event| event.at.clone()),
    column("KIND", |event| event.kind.clone()),
    column("SUBJECT", |event| format!("{}/{}", event.subject_kind, event.subject_id)),
    column("DATA", |event| output::fields(&event.data, &[])),
    wide("CORRELATION", |event| event.correlation_id.clone().unwrap_or_default()),
];

/// Prints each event as it arrives.
async fn watch(client: &Client, target: &Target, after: Option<u64>) -> anyhow::Result<()> {
    let mut events = EventFollower::start(client, target.project.clone(), after).await?;
    let (layout, _) = Layout::of(EVENTS, &[], target.output == Format::Wide, true);
    loop {
        let Next::Event(event) = events.next().await? else { continue };
        match target.output {
            Format::Table | Format::Wide => output::line(layout.cells(EVENTS, &event).join("  "))?,
            Format::Name => output::line(event.sequence)?,
            Format::Json | Format::Yaml | Format::JsonPath(_) => output::record(target.output, &event)?,
        }
    }
}
