//! Implements `gpuaas allocation`.

use std::process::ExitCode;

use clap::Subcommand;
use gpuaas_api_types::{Allocation, CreateAllocation};
use gpuaas_client::{Client, ClientError};
use gpuaas_model::ExitStatus;

use super::{
    following::{EventFollower, Next},
    if_match::{self, IfMatch},
};
use crate::{cli::Target, output};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Allocate a node to the project
    Create {
        /// Node to allocate, by name or id
        #[arg(long)]
        node: String,
    },
    /// List allocations
    List {
        /// Only allocations in this state: requested, provisioning, active, releasing, released, failed or release_failed
        #[arg(long)]
        state: Option<String>,
    },
    /// Show an allocation
    Show {
        /// Id of the allocation
        id: String,
        /// Print only the allocation's ETag, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// Release an allocated node
    Release {
        /// Id of the allocation
        id: String,
        #[command(flatten)]
        seen: IfMatch,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create { node } => return create(client, target, node).await,
        Verb::List { state } => {
            let allocations = client.list_allocations(target.project.clone(), state).await?.items;
            output::list(target.output, &allocations, &["ID", "NODE", "STATE", "DETAIL"], row, |item| item.id.clone())?;
        }
        Verb::Show { id, etag: true } => if_match::print_etag(target, &client.allocation_etag(&id).await?)?,
        Verb::Show { id, etag: false } => {
            let allocation = client.get_allocation(&id).await?;
            output::one(target.output, &allocation, described, &allocation.id)?;
        }
        Verb::Release { id, seen } => {
            let allocation = seen.client(client).release_allocation(&id).await?;
            output::one(target.output, &allocation, described, &allocation.id)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(client: &Client, target: &Target, node: String) -> anyhow::Result<ExitCode> {
    let project = target.project.clone();
    let project = project
        .ok_or_else(|| ClientError::InvalidSetting("no project is selected: set GPUAAS_PROJECT or --project".into()))?;
    let mut allocation = client.create_allocation(&CreateAllocation { project: project.clone(), node }).await?;
    if target.wait {
        allocation = await_settled(client, project, allocation).await?;
    }
    output::one(target.output, &allocation, described, &allocation.id)?;
    Ok(if allocation.state == "failed" { output::exit(ExitStatus::Failed) } else { ExitCode::SUCCESS })
}

/// Waits until the allocation is no longer provisioning. Checks again after each of its events.
async fn await_settled(client: &Client, project: String, made: Allocation) -> anyhow::Result<Allocation> {
    let mut events = EventFollower::start(client, Some(project.clone()), None).await?;
    loop {
        let now = client.get_allocation(&made.id).await?;
        if !matches!(now.state.as_str(), "requested" | "provisioning") {
            return Ok(now);
        }
        loop {
            match events.next().await? {
                Next::Event(event) if event.subject_id != made.id => {}
                Next::Event(_) | Next::Reconnected => break,
            }
        }
    }
}

fn row(allocation: &Allocation) -> Vec<String> {
    let detail = allocation.detail.clone().unwrap_or_default();
    vec![allocation.id.clone(), allocation.node_name.clone(), allocation.state.clone(), detail]
}

fn described(allocation: &Allocation) -> String {
    let detail = allocation.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("Allocation {} of {} is {}{detail}.", allocation.id, allocation.node_name, allocation.state)
}
