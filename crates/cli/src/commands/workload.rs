//! Implements `gpuaas workload`.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use gpuaas_api_types::{AccessGrant, AddMembers, Deploy, Preview, RequestAccess, WorkloadDetail};
use gpuaas_client::{Client, ClientError, GiveUp};
use serde_json::{Value, json};

use super::{
    confirm::{Confirm, Loss},
    if_match::{self, IfMatch},
    lists::Watch,
    logs,
    named_nodes::allocations,
    plan_args::{ConfirmedPlan, PlanArgs},
    plan_shown, watching, workload_diff, workload_operations, workload_report, workload_shown as shown,
};
use crate::{
    completion,
    duration::is_past,
    kubeconfig, output,
    target::{Format, Target},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Deploy an app on allocated nodes
    Deploy(DeployArgs),
    /// List workloads
    List {
        #[command(flatten)]
        watch: Watch,
        /// Only workloads in this section: needs_attention, active, stopped or history
        #[arg(long)]
        section: Option<String>,
    },
    /// Show a workload: its state, the reasons, and the next action
    Show {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
        /// Print only the workload's ETag, for --if-match
        #[arg(long)]
        etag: bool,
    },
    /// Compare a workload's desired state with what is observed; exit status 1 if it deviates, 7 if something could not be asked
    Diff {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
    },
    /// List the members of a workload
    Members {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Add agents to a workload
    AddMember {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
        /// Node for a new agent, by node name or allocation id; repeatable
        #[arg(long = "agent", value_name = "NODE", required = true, add = ArgValueCandidates::new(completion::usable_nodes))]
        agents: Vec<String>,
        #[command(flatten)]
        plan: PlanArgs,
        #[command(flatten)]
        seen: IfMatch,
    },
    #[command(flatten)]
    Operation(workload_operations::Verb),
    /// Remove a workload from all of its nodes
    Decommission {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
        #[command(flatten)]
        give_up: GiveUpArgs,
        #[command(flatten)]
        plan: ConfirmedPlan,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Continue the failed or cancelled operation of a workload
    Resume {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
        #[command(flatten)]
        plan: PlanArgs,
        #[command(flatten)]
        seen: IfMatch,
    },
    /// Print a kubeconfig for a workload's cluster, or merge it into yours
    Kubeconfig {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
        /// Kind of credential: direct or break-glass; default: direct
        #[arg(long, add = ArgValueCandidates::new(completion::access_kinds))]
        kind: Option<String>,
        /// Role in the cluster: cluster-admin or cluster-view; default: cluster-admin where your token allows it
        #[arg(long, add = ArgValueCandidates::new(completion::cluster_roles))]
        role: Option<String>,
        /// Lifetime, from 10m to 30 days, for break-glass at most 1h; default: 24h for direct, 1h for break-glass
        #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
        ttl: Option<Duration>,
        /// Reason, in one line; required for break-glass
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        merge: Merge,
    },
    /// Show how to reach a workload's cluster, and the delivered kubeconfigs
    Access {
        /// Name or id of the workload
        #[arg(add = ArgValueCandidates::new(completion::workloads))]
        workload: String,
    },
    /// Revoke a delivered kubeconfig
    RevokeAccess {
        /// Id of the access grant, as `workload access` lists it
        grant: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Report phase, progress and health of a workload's members, as its controller
    Report(workload_report::Report),
    /// Print the logs of a workload: journals of its members, output of its tasks and events, merged by time
    Logs(logs::Logs),
}

/// What a decommission may leave unproven.
#[derive(Debug, clap::Args)]
pub(crate) struct GiveUpArgs {
    /// Give up the member on this unreachable node; the node accepts no deployment until it is clean; repeatable
    #[arg(long, value_name = "NODE", requires = "reason")]
    give_up: Vec<String>,
    /// Give up every member whose removal the last decommission could not prove
    #[arg(long, requires = "reason")]
    force: bool,
    /// Reason for --give-up or --force, in one line; the audit keeps it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl From<GiveUpArgs> for GiveUp {
    fn from(GiveUpArgs { give_up: nodes, force, reason }: GiveUpArgs) -> Self {
        Self { nodes, force, reason }
    }
}

/// Where the kubeconfig goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Merge {
    /// Merge into the file that kubectl uses, $KUBECONFIG or ~/.kube/config, instead of printing; selects the new context
    #[arg(long)]
    merge: bool,
    /// With --merge: name of the context, cluster and user, whose earlier entries are replaced; default: gpuaas/PROJECT/WORKLOAD
    #[arg(long, value_name = "NAME", requires = "merge")]
    kube_context: Option<String>,
    /// With --merge: leave the current context of the file as it is
    #[arg(long, requires = "merge")]
    keep_current: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeployArgs {
    /// Slug of the app, for example rke2
    #[arg(add = ArgValueCandidates::new(completion::apps))]
    app: String,
    /// Name of the new workload
    #[arg(long)]
    name: String,
    /// Node for the server, by node name or allocation id
    #[arg(long, value_name = "NODE", add = ArgValueCandidates::new(completion::usable_nodes))]
    server: Option<String>,
    /// Node for an agent, by node name or allocation id; repeatable
    #[arg(long = "agent", value_name = "NODE", add = ArgValueCandidates::new(completion::usable_nodes))]
    agents: Vec<String>,
    /// Version of the app; default: the version that was imported last
    #[arg(long, alias = "app-version", value_name = "VERSION", add = ArgValueCandidates::new(completion::versions))]
    version: Option<String>,
    /// Settings of the app as a JSON object; default: none
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    #[command(flatten)]
    plan: PlanArgs,
}

pub(crate) async fn run(client: &Client, target: &Target, verb: Verb) -> anyhow::Result<ExitCode> {
    let project = target.project.clone();
    match verb {
        Verb::Deploy(ask) => return deploy(client, target, ask).await,
        Verb::AddMember { workload, agents, plan, seen } => {
            let client = &seen.client(client).with_plan_digest(plan.plan_digest);
            let placement = json!({ "agent_allocation_ids": allocations(client, target, None, &agents).await? });
            let app = client.get_workload(project.clone(), &workload).await?.workload.app;
            let ask = AddMembers { app, placement };
            if plan.plan {
                print_plan(target, &client.preview_members(project, &workload, &ask).await?, &workload)?;
            } else {
                let started = client.add_members(project, &workload, &ask).await?;
                return watching::report_and_follow(client, target, started).await;
            }
        }
        Verb::Operation(verb) => return workload_operations::run(client, target, verb).await,
        Verb::Decommission { workload, give_up, plan, seen } => {
            return decommission(&seen.client(client), target, &workload, (plan, give_up.into())).await;
        }
        Verb::Resume { workload, plan, seen } => return resume(&seen.client(client), target, &workload, plan).await,
        Verb::List { watch, section } => list(client, target, watch, section).await?,
        Verb::Show { workload, etag: true } => {
            if_match::print_etag(target, &client.workload_etag(project, &workload).await?)?;
        }
        Verb::Show { workload, etag: false } => show(client, target, &workload).await?,
        Verb::Diff { workload } => return workload_diff::run(client, target, &workload).await,
        Verb::Members { workload, watch } => {
            let read = async || Ok(client.list_members(project.clone(), &workload).await?.items);
            shown::MEMBERS.print(client, target, watch, false, read).await?;
        }
        Verb::Kubeconfig { workload, kind, role, ttl, reason, merge } => {
            let ask = RequestAccess { kind, role, ttl_seconds: ttl.map(|ttl| ttl.as_secs()), reason };
            kubeconfig(client, target, &workload, &ask, merge).await?;
        }
        Verb::Access { workload } => {
            let access = client.get_access(project, &workload).await?;
            if target.output == Format::Name {
                // `revoke-access` takes them.
                let valid: Vec<_> = access.grants.into_iter().filter(|grant| !is_past(&grant.expires_at)).collect();
                output::list(target.output, &valid, &[], |grant| grant.id.clone())?;
            } else {
                output::one(target.output, &access, shown::access, &workload)?;
            }
        }
        Verb::RevokeAccess { grant, confirm } => {
            let dry = client.clone().with_dry_run();
            let loss = |of: &AccessGrant| {
                let act = format!("revoke the {} kubeconfig of {} (grant {})", of.role, of.requested_by, of.id);
                Loss::new(act, "The cluster refuses it from then on.")
            };
            if !confirm.allows(target, dry.revoke_access(&grant), loss, &grant).await? {
                return Ok(ExitCode::SUCCESS);
            }
            let revoked = client.revoke_access(&grant).await?;
            output::one(target.output, &revoked, |grant| format!("Access grant {} is revoked.", grant.id), &grant)?;
        }
        Verb::Report(ask) => workload_report::run(client, target, ask).await?,
        Verb::Logs(ask) => logs::run(client, target, ask).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn decommission(
    client: &Client,
    target: &Target,
    key: &str,
    (plan, give_up): (ConfirmedPlan, GiveUp),
) -> anyhow::Result<ExitCode> {
    let project = target.project.clone();
    let preview = client.preview_giving_up(project.clone(), key, &give_up);
    let loss = |preview: &Preview| plan_shown::removal(preview, key, target.project.as_deref());
    let Some(permit) = plan.permit(target, preview, loss, key).await? else {
        return Ok(ExitCode::SUCCESS);
    };
    let client = &client.clone().with_plan_digest(permit.plan_digest);
    watching::report_and_follow(client, target, client.decommission_giving_up(project, key, &give_up).await?).await
}

async fn resume(client: &Client, target: &Target, key: &str, plan: PlanArgs) -> anyhow::Result<ExitCode> {
    let project = target.project.clone();
    if plan.plan {
        print_plan(target, &client.preview_resume(project, key).await?, key)?;
        return Ok(ExitCode::SUCCESS);
    }
    let client = &client.clone().with_plan_digest(plan.plan_digest);
    watching::report_and_follow(client, target, client.resume_workload(project, key).await?).await
}

async fn deploy(client: &Client, target: &Target, ask: DeployArgs) -> anyhow::Result<ExitCode> {
    let mut ids = allocations(client, target, ask.server.as_ref(), &ask.agents).await?;
    let agents = ids.split_off(usize::from(ask.server.is_some()));
    let mut placement = json!({ "agent_allocation_ids": agents });
    if let Some(server) = ids.pop() {
        placement["server_allocation_id"] = server.into();
    }
    let config = ask.config.map(|text| serde_json::from_str(&text)).transpose();
    let config = config.map_err(|error| ClientError::InvalidSetting(format!("--config is not valid JSON: {error}")))?;
    let (project, name) = (target.project.clone(), ask.name.clone());
    let request =
        Deploy { project, app: ask.app, version: ask.version, name, placement, config: config.unwrap_or(Value::Null) };
    if ask.plan.plan {
        print_plan(target, &client.preview_workload(&request).await?, &ask.name)?;
        return Ok(ExitCode::SUCCESS);
    }
    let client = &client.clone().with_plan_digest(ask.plan.plan_digest);
    let started = client.deploy_workload(&request).await?;
    if target.output.is_for_people() && output::is_interactive() {
        let app = client.get_app(&request.app).await?;
        output::message(format_args!("{}   not promised: {}", app.name, app.not_promised.join("; ")));
    }
    watching::report_and_follow(client, target, started).await
}

fn print_plan(target: &Target, preview: &Preview, name: &str) -> anyhow::Result<()> {
    output::one(target.output, preview, plan_shown::preview, name)
}

async fn list(client: &Client, target: &Target, watch: Watch, section: Option<String>) -> anyhow::Result<()> {
    let read = async || {
        let (mut workloads, mut cursor) = (Vec::new(), None);
        loop {
            let page = client.list_workloads(target.project.clone(), section.clone(), cursor).await?;
            workloads.extend(page.items);
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(workloads),
            }
        }
    };
    if target.output == Format::Table && !watch.is_set() {
        let sections = shown::sections(&read().await?);
        if sections.is_empty() {
            output::message(output::NOTHING_FOUND);
            return Ok(());
        }
        return output::line(sections.as_str());
    }
    shown::WORKLOADS.print(client, target, watch, section.is_some(), read).await
}

async fn show(client: &Client, target: &Target, key: &str) -> anyhow::Result<()> {
    let detail = client.get_workload(target.project.clone(), key).await?;
    let operation = match &detail.operation {
        Some(id) if target.output.is_for_people() => Some(client.get_operation(id).await?),
        Some(_) | None => None,
    };
    let describe = |detail: &WorkloadDetail| shown::described(detail, operation.as_ref(), &target.project_flag());
    output::one(target.output, &detail, describe, &detail.workload.name)
}

async fn kubeconfig(
    client: &Client,
    target: &Target,
    key: &str,
    ask: &RequestAccess,
    options: Merge,
) -> anyhow::Result<()> {
    let path = if options.merge { Some(kubeconfig::default_path()?) } else { None };
    if let Some(path) = &path {
        // A kubeconfig that cannot be merged is not delivered at all.
        kubeconfig::check(path)?;
    }
    let context = match options.kube_context {
        Some(name) => name,
        None if options.merge => context_name(client, target, key).await?,
        None => String::new(),
    };
    let granted = client.deliver_kubeconfig(target.project.clone(), key, ask).await?;
    if target.output.is_for_people() {
        output::message(format_args!(
            "{} · {} · until {} · grant {}",
            granted.kind, granted.role, granted.expires_at, granted.grant
        ));
    }
    if let Some(path) = path {
        // Locked only now: a command that is interrupted while it waits for the control plane leaves no lock behind.
        let merged = kubeconfig::LockedFile::open(&path)
            .and_then(|file| file.merge(&granted.kubeconfig, &context, options.keep_current));
        let revoke =
            || format!("the credential is not in use; revoke it: gpuaas workload revoke-access {}", granted.grant);
        let path = merged.with_context(revoke)?;
        let current = if options.keep_current { "" } else { ", the current context" };
        let describe = |_: &Value| format!("Merged into {}: context {context}{current}.", path.display());
        let merged =
            json!({ "grant": granted.grant, "expires_at": granted.expires_at, "context": context, "file": path });
        return output::one(target.output, &merged, describe, &context);
    }
    if target.output.is_for_people() || target.output == Format::Name {
        return output::write(&granted.kubeconfig);
    }
    output::one(target.output, &granted, |_| String::new(), &granted.grant)
}

/// Returns `gpuaas/PROJECT/WORKLOAD`, which names the same workload in every later merge.
async fn context_name(client: &Client, target: &Target, key: &str) -> anyhow::Result<String> {
    let workload = client.get_workload(target.project.clone(), key).await?.workload;
    let projects = client.list_projects().await?.items;
    let project = projects.into_iter().find(|project| project.id == workload.project).map(|project| project.name);
    Ok(format!("gpuaas/{}/{}", project.unwrap_or(workload.project), workload.name))
}
