//! `gpuaas event`.

use futures::StreamExt;
use gpuaas_api_types::Event;
use gpuaas_client::Client;

use crate::{
    cli::{Event as Verb, Format, Target},
    output,
};

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { after } => {
            let mut events = Vec::new();
            let mut behind = after;
            loop {
                let page = client.list_events(target.project.clone(), behind).await?;
                events.extend(page.items);
                match page.next_cursor.and_then(|cursor| cursor.parse().ok()) {
                    Some(next) => behind = next,
                    None => break,
                }
            }
            output::list(target.output, &events, &["SEQ", "AT", "KIND", "SUBJECT", "DATA"], row, |event| {
                event.sequence.to_string()
            })
        }
        Verb::Watch { after } => watch(client, target, after).await,
    }
}

fn row(event: &Event) -> Vec<String> {
    vec![
        event.sequence.to_string(),
        event.at.clone(),
        event.kind.clone(),
        event.subject_kind.clone(),
        event.data.to_string(),
    ]
}

/// Prints a line per event, as it comes.
async fn watch(client: &Client, target: &Target, after: u64) -> anyhow::Result<()> {
    let mut events = Box::pin(client.follow_events(target.project.clone(), after).await?);
    while let Some(event) = events.next().await {
        let event = event?;
        match target.output {
            Format::Table => println!("{}", row(&event).join("  ")),
            Format::Json => println!("{}", serde_json::to_string(&event)?),
            Format::Yaml => print!("---\n{}", serde_saphyr::to_string(&event)?),
            Format::Name => println!("{}", event.sequence),
        }
    }
    Ok(())
}
