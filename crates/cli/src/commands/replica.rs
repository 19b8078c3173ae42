//! Implements `gpuaas replica`.

use clap::Subcommand;
use gpuaas_api_types::Replica;
use gpuaas_client::Client;

use crate::{cli::Target, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the replicas of the control plane with the number of nodes and operations that each holds; * marks the one that answered
    List,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List => {
            let replicas = client.list_replicas().await?.items;
            let columns = ["ID", "STATE", "API", "CHANNEL", "NODES", "OPERATIONS", "VERSION", "STARTED"];
            let row = |replica: &Replica| {
                vec![
                    format!("{}{}", replica.id, if replica.answers { " *" } else { "" }),
                    replica.state.clone(),
                    replica.api_url.clone(),
                    replica.channel.clone(),
                    replica.nodes.to_string(),
                    replica.operations.to_string(),
                    replica.version.clone(),
                    replica.started_at.clone(),
                ]
            };
            output::list(target.output, &replicas, &columns, row, |replica| replica.id.clone())
        }
    }
}
