//! Implements `gpuaas allocation`.

use std::process::ExitCode;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{Allocation, CreateAllocation};
use gpuaas_client::{Client, ClientError};
use gpuaas_model::{AllocationState, ExitStatus};

use super::{
    confirm::{Confirm, Loss},
    following::{EventFollower, Next},
    if_match::{self, IfMatch},
    lists::{EventStream, Listing, Watch},
    waiting_shown,
};
use crate::{
    completion, output,
    table::{column, wide},
    target::Target,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Allocate a node to the project
    Create {
        /// Node to allocate, by name or id
        #[arg(long, add = ArgValueCandidates::new(completion::nodes))]
        node: String,
    },
    /// List allocations
    List {
        #[command(flatten)]
        watch: Watch,
        /// Only allocations in this state: requested, provisioning, active, releasing, released, failed or release_failed
        #[arg(long, add = ArgValueCandidates::new(completion::values(AllocationState::ALL)))]
        state: Option<String>,
    },
    /// Show an allocation
    Show {
        /// Id of the allocation, or name of its node
        #[arg(add = ArgValueCandidates::new(completion::allocations))]
        id: String,
        /// Print only the allocation's ETag, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// Release an allocated node
    Release {
        /// Id of the allocation, or name of its node
        #[arg(add = ArgValueCandidates::new(completion::allocations))]
        id: String,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        seen: IfMatch,
    },
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create { node } => return create(client, target, node).await,
        Verb::List { watch, state } => {
            let read = async || Ok(client.list_allocations(target.project.clone(), state.clone()).await?.items);
            ALLOCATIONS.print(client, target, watch, state.is_some(), read).await?;
        }
        Verb::Show { id, etag: true } => if_match::print_etag(target, &client.allocation_etag(&id).await?)?,
        Verb::Show { id, etag: false } => {
            let allocation = client.get_allocation(&id).await?;
            output::one(target.output, &allocation, described, &allocation.id)?;
        }
        Verb::Release { id, confirm, seen } => {
            let client = seen.client(client);
            let dry = client.clone().with_dry_run();
            let loss = |of: &Allocation| {
                let lost = "The project loses the node, and the node's identity ends; its machine must be reimaged before it is allocated \
                            again.";
                Loss::new(format!("release {} (allocation {})", of.node_name, of.id), lost)
            };
            if !confirm.allows(target, dry.release_allocation(&id), loss, &id).await? {
                return Ok(ExitCode::SUCCESS);
            }
            let allocation = client.release_allocation(&id).await?;
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

/// Waits until the allocation is no longer provisioning. Checks again after each of its events, and prints each new state.
async fn await_settled(client: &Client, project: String, made: Allocation) -> anyhow::Result<Allocation> {
    let mut events = EventFollower::start(client, Some(project.clone()), None).await?;
    let mut state = String::new();
    loop {
        let now = client.get_allocation(&made.id).await?;
        if now.state != state {
            output::message(format_args!("{} {}: {}", now.node_name, now.id, now.state));
            state.clone_from(&now.state);
        }
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

const ALLOCATIONS: Listing<Allocation> = Listing {
    columns: &[
        column("ID", |allocation| allocation.id.clone()),
        column("PROJECT", |allocation| allocation.project_name.clone()),
        column("NODE", |allocation| allocation.node_name.clone()),
        column("STATE", |allocation| allocation.state.clone()),
        column("WORKLOAD", |allocation| allocation.workload.clone().unwrap_or_default()),
        column("MEMBER", |allocation| allocation.member.clone().unwrap_or_default()),
        column("DETAIL", |allocation| allocation.detail.clone().unwrap_or_default()),
        column("WAITING FOR", |allocation| waiting_shown::cell(allocation.waiting.as_ref())),
        wide("CREATED", |allocation| allocation.created_at.clone()),
    ],
    name: |allocation| &allocation.id,
    is_live: |allocation| !matches!(allocation.state.as_str(), "released" | "failed"),
    events: &["allocation."],
    stream: EventStream::Project,
    volatile: &["waiting"],
};

fn described(allocation: &Allocation) -> String {
    let detail = allocation.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let waiting = waiting_shown::lines(allocation.waiting.as_ref(), allocation.detail.as_deref(), "");
    format!("Allocation {} of {} is {}{detail}.{waiting}", allocation.id, allocation.node_name, allocation.state)
}
