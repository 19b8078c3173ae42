//! Implements `gpuaas workload`.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Subcommand;
use gpuaas_api_types::{AddMembers, Deploy, Preview, RequestAccess, Workload};
use gpuaas_client::Client;
use serde_json::{Value, json};

use super::{
    if_match::{self, IfMatch},
    logs, watching, workload_shown as shown,
};
use crate::{
    cli::{Format, Target},
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Deploy an app on allocated nodes
    Deploy(DeployArgs),
    /// List workloads
    List {
        /// Only workloads in this section: needs_attention, active, stopped or history
        #[arg(long)]
        section: Option<String>,
    },
    /// Show a workload: its state, the reasons, and the next action
    Show {
        /// Name or id of the workload
        workload: String,
        /// Print only the workload's ETag, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// List the members of a workload
    Members {
        /// Name or id of the workload
        workload: String,
    },
    /// Add agents to a workload
    AddMember {
        /// Name or id of the workload
        workload: String,
        /// Node for a new agent, by node name or allocation id; repeatable
        #[arg(long = "agent", value_name = "NODE", required = true)]
        agents: Vec<String>,
        /// Print the plan without carrying it out
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Remove a workload from all of its nodes
    Decommission {
        /// Name or id of the workload
        workload: String,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Retry the operation of a workload that needs attention
    Resume {
        /// Name or id of the workload
        workload: String,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Print a kubeconfig for a workload's cluster
    Kubeconfig {
        /// Name or id of the workload
        workload: String,
        /// Kind of credential: direct or break-glass; default: direct
        #[arg(long)]
        kind: Option<String>,
        /// Role in the cluster: cluster-admin or cluster-view; default: cluster-admin where your token allows it
        #[arg(long)]
        role: Option<String>,
        /// Lifetime, from 10m to 30 days, for break-glass at most 1h; default: 24h for direct, 1h for break-glass
        #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
        ttl: Option<Duration>,
        /// Reason, in one line; required for break-glass
        #[arg(long)]
        reason: Option<String>,
    },
    /// Show how to reach a workload's cluster, and the delivered kubeconfigs
    Access {
        /// Name or id of the workload
        workload: String,
    },
    /// Revoke a delivered kubeconfig
    RevokeAccess {
        /// Id of the access grant, as `workload access` lists it
        grant: String,
    },
    /// Print the journal of a member
    Logs(logs::Logs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeployArgs {
    /// Slug of the app, for example rke2
    app: String,
    /// Name of the new workload
    #[arg(long)]
    name: String,
    /// Node for the server, by node name or allocation id
    #[arg(long, value_name = "NODE")]
    server: Option<String>,
    /// Node for an agent, by node name or allocation id; repeatable
    #[arg(long = "agent", value_name = "NODE")]
    agents: Vec<String>,
    /// Version of the app; default: the newest imported one
    #[arg(long, alias = "app-version", value_name = "VERSION")]
    version: Option<String>,
    /// Settings of the app as a JSON object; default: none
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Print the plan without carrying it out
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    let project = target.project.clone();
    match verb {
        Verb::Deploy(ask) => return deploy(client, target, ask).await,
        Verb::AddMember { workload, agents, dry_run, seen } => {
            let client = &seen.client(client);
            let placement = json!({ "agent_allocation_ids": allocations(client, target, &agents).await? });
            let ask = AddMembers { placement };
            if dry_run {
                print_preview(target, &client.preview_members(project, &workload, &ask).await?, &workload)?;
            } else {
                return watching::report_and_follow(
                    client,
                    target,
                    client.add_members(project, &workload, &ask).await?,
                )
                .await;
            }
        }
        Verb::Decommission { workload, seen } => {
            let started = seen.client(client).decommission_workload(project, &workload).await?;
            return watching::report_and_follow(client, target, started).await;
        }
        Verb::Resume { workload, seen } => {
            let started = seen.client(client).resume_workload(project, &workload).await?;
            return watching::report_and_follow(client, target, started).await;
        }
        Verb::List { section } => list(target, &all(client, target, section).await?)?,
        Verb::Show { workload, etag: true } => {
            if_match::print_etag(target, &client.workload_etag(project, &workload).await?)?;
        }
        Verb::Show { workload, etag: false } => show(client, target, &workload).await?,
        Verb::Members { workload } => {
            let members = client.list_members(project, &workload).await?.items;
            output::list(target.output, &members, &shown::MEMBERS, shown::member, |member| member.name.clone())?;
        }
        Verb::Kubeconfig { workload, kind, role, ttl, reason } => {
            let ask = RequestAccess { kind, role, ttl_seconds: ttl.map(|ttl| ttl.as_secs()), reason };
            kubeconfig(client, target, &workload, &ask).await?;
        }
        Verb::Access { workload } => {
            output::one(target.output, &client.get_access(project, &workload).await?, shown::access, &workload)?;
        }
        Verb::RevokeAccess { grant } => {
            let revoked = client.revoke_access(&grant).await?;
            output::one(target.output, &revoked, |grant| format!("Access grant {} is revoked.", grant.id), &grant)?;
        }
        Verb::Logs(ask) => logs::run(client, target, ask).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn deploy(client: &Client, target: &Target, ask: DeployArgs) -> anyhow::Result<ExitCode> {
    let mut placement = json!({ "agent_allocation_ids": allocations(client, target, &ask.agents).await? });
    if let Some(server) = ask.server {
        placement["server_allocation_id"] = allocation(client, target, &server).await?.into();
    }
    let config =
        ask.config.map(|text| serde_json::from_str(&text)).transpose().context("--config is not valid JSON")?;
    let (project, name) = (target.project.clone(), ask.name.clone());
    let request =
        Deploy { project, app: ask.app, version: ask.version, name, placement, config: config.unwrap_or(Value::Null) };
    if ask.dry_run {
        print_preview(target, &client.preview_workload(&request).await?, &ask.name)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = client.deploy_workload(&request).await?;
    if target.output == Format::Table && output::is_interactive() {
        let app = client.get_app(&request.app).await?;
        eprintln!("{}   not promised: {}", app.name, app.not_promised.join("; "));
    }
    watching::report_and_follow(client, target, started).await
}

fn print_preview(target: &Target, preview: &Preview, name: &str) -> anyhow::Result<()> {
    output::one(target.output, preview, shown::preview, name)
}

async fn allocations(client: &Client, target: &Target, nodes: &[String]) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for node in nodes {
        ids.push(allocation(client, target, node).await?);
    }
    Ok(ids)
}

/// Returns the id of the node's open allocation. A key that names no allocation is returned unchanged.
async fn allocation(client: &Client, target: &Target, key: &str) -> anyhow::Result<String> {
    let known = client.list_allocations(target.project.clone(), None).await?.items;
    let open = |state: &str| !matches!(state, "released" | "failed");
    let found = known
        .iter()
        .find(|allocation| allocation.id == key || (allocation.node_name == key && open(&allocation.state)));
    // The control plane reports every invalid placement at once.
    Ok(found.map_or_else(|| key.to_owned(), |allocation| allocation.id.clone()))
}

async fn all(client: &Client, target: &Target, section: Option<String>) -> anyhow::Result<Vec<Workload>> {
    let (mut workloads, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.list_workloads(target.project.clone(), section.clone(), cursor).await?;
        workloads.extend(page.items);
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(workloads),
        }
    }
}

fn list(target: &Target, workloads: &[Workload]) -> anyhow::Result<()> {
    if target.output == Format::Table {
        let sections = shown::sections(workloads);
        println!("{}", if sections.is_empty() { "no workloads" } else { &sections });
        return Ok(());
    }
    output::list(target.output, workloads, &[], |_| Vec::new(), |workload| workload.name.clone())
}

async fn show(client: &Client, target: &Target, key: &str) -> anyhow::Result<()> {
    let detail = client.get_workload(target.project.clone(), key).await?;
    let operation = match &detail.operation {
        Some(id) if target.output == Format::Table => Some(client.get_operation(id).await?),
        Some(_) | None => None,
    };
    output::one(target.output, &detail, |detail| shown::described(detail, operation.as_ref()), &detail.workload.name)
}

async fn kubeconfig(client: &Client, target: &Target, key: &str, ask: &RequestAccess) -> anyhow::Result<()> {
    let granted = client.deliver_kubeconfig(target.project.clone(), key, ask).await?;
    if target.output == Format::Table {
        eprintln!("{} · {} · until {} · grant {}", granted.kind, granted.role, granted.expires_at, granted.grant);
        print!("{}", granted.kubeconfig);
        return Ok(());
    }
    output::one(target.output, &granted, |_| String::new(), &granted.grant)
}
