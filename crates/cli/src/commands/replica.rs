//! Implements `gpuaas replica`.

use clap::Subcommand;
use gpuaas_api_types::Replica;
use gpuaas_client::Client;

use super::lists::{EventStream, Listing, Watch};
use crate::{
    table::{column, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the replicas of the control plane with the number of nodes and operations that each holds; * marks the one that answered
    List(Watch),
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    let Verb::List(watch) = verb;
    REPLICAS.print(client, target, watch, false, async || Ok(client.list_replicas().await?.items)).await
}

const REPLICAS: Listing<Replica> = Listing {
    columns: &[
        column("ID", |replica| format!("{}{}", replica.id, if replica.answers { " *" } else { "" })),
        column("STATE", |replica| replica.state.clone()),
        column("API", |replica| replica.api_url.clone()),
        column("CHANNEL", |replica| replica.channel.clone()),
        column("NODES", |replica| replica.nodes.to_string()),
        column("OPERATIONS", |replica| replica.operations.to_string()),
        column("VERSION", |replica| replica.version.clone()),
        column("STARTED", |replica| replica.started_at.clone()),
        wide("ADDRESS", |replica| replica.address.clone().unwrap_or_default()),
    ],
    name: |replica| &replica.id,
    is_live: |replica| replica.state == "alive",
    events: &["replica."],
    stream: EventStream::Platform,
    // Another replica may answer the next request.
    volatile: &["answers"],
};
