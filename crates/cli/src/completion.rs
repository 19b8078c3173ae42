//! Completes command lines in a shell: commands and flags from their definitions, names of objects from the control plane.
//!
//! Guarantees: a failure completes nothing and prints nothing, because a message would end in the middle of the user's command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    time::Duration,
};

use anyhow::Context;
use clap::{ArgMatches, FromArgMatches};
use clap_complete::{CompletionCandidate, Shell, env::Shells};
use gpuaas_api_types::{AccessKind, Member, Operation, error_pages};
use gpuaas_client::Client;
use gpuaas_model::Role;

use crate::{
    commands::app::is_startable,
    connection,
    contexts::Contexts,
    help, output,
    target::{Format, Target},
};

/// Time limit of all requests for one completion: a user who waits longer types on.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Prints the script that makes the shell ask this program.
pub(crate) fn print_registration(shell: Shell) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).with_context(|| format!("{shell} is not supported"))?;
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", "gpuaas", "gpuaas", "gpuaas", &mut script)?;
    output::write(script)
}

/// Completes the values of a closed list.
pub(crate) fn values<T: Display>(all: &'static [T]) -> impl Fn() -> Vec<CompletionCandidate> {
    move || all.iter().map(|value| CompletionCandidate::new(value.to_string())).collect()
}

/// The roles that a service account can have.
pub(crate) fn project_roles() -> Vec<CompletionCandidate> {
    let roles = Role::ALL.iter().filter(|role| !role.is_of_platform());
    roles.map(|role| CompletionCandidate::new(role.as_str())).collect()
}

/// The operations that `gpuaas operation start` takes of some app.
pub(crate) fn startable_operations() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let operations = client.list_apps().await?.items.into_iter().flat_map(|app| app.operations);
        let kinds: BTreeSet<String> =
            operations.filter(|of| of.available && is_startable(of)).map(|of| of.kind).collect();
        Ok(kinds.into_iter().map(CompletionCandidate::new).collect())
    })
}

/// Error codes and findings.
pub(crate) fn explainable() -> Vec<CompletionCandidate> {
    error_pages::codes().chain(error_pages::findings()).map(CompletionCandidate::new).collect()
}

pub(crate) fn formats() -> Vec<CompletionCandidate> {
    Format::NAMES.iter().map(CompletionCandidate::new).collect()
}

pub(crate) fn contexts() -> Vec<CompletionCandidate> {
    let contexts = Contexts::load().unwrap_or_default();
    contexts.contexts.into_keys().map(CompletionCandidate::new).collect()
}

pub(crate) fn projects() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let projects = client.list_projects().await?.items;
        Ok(projects.into_iter().map(|project| CompletionCandidate::new(project.name)).collect())
    })
}

pub(crate) fn nodes() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let nodes = client.list_nodes(None, None).await?.items;
        Ok(nodes.into_iter().map(|node| described(node.name, node.state)).collect())
    })
}

/// The project's nodes on which a member can be placed: of the app that the command line names, or of its workload's.
pub(crate) fn usable_nodes() -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let app = match (argument("app"), argument("workload")) {
            (Some(app), _) => app,
            (None, Some(workload)) => client.get_workload(target.project.clone(), &workload).await?.workload.app,
            (None, None) => return Ok(Vec::new()),
        };
        let options = client.placement_options(target.project, &app).await?.items;
        let usable = options.into_iter().filter(|option| option.usable).map(|option| option.allocation);
        Ok(usable.map(|of| described(of.node_name, of.id)).collect())
    })
}

pub(crate) fn allocations() -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let allocations = client.list_allocations(target.project, None).await?.items;
        let open = allocations.into_iter().filter(|of| !matches!(of.state.as_str(), "released" | "failed"));
        Ok(open.map(|of| described(of.id, format!("{} {}", of.node_name, of.state))).collect())
    })
}

pub(crate) fn workloads() -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let workloads = client.list_workloads(target.project, None, None).await?.items;
        let live = workloads.into_iter().filter(|of| of.section != "history");
        // Once, although several projects can use it.
        let names: BTreeMap<String, String> =
            live.map(|of| (of.name, format!("{} {}", of.app, of.lifecycle))).collect();
        Ok(names.into_iter().map(|(name, help)| described(name, help)).collect())
    })
}

/// The imported versions of the app that the command line names.
pub(crate) fn versions() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let Some(app) = argument("app") else { return Ok(Vec::new()) };
        Ok(client.get_app(&app).await?.versions.into_iter().map(CompletionCandidate::new).collect())
    })
}

/// The kinds of credentials of the workload that the command line names.
pub(crate) fn access_kinds() -> Vec<CompletionCandidate> {
    of_access(|kinds| kinds.into_iter().map(|kind| kind.name).collect())
}

/// The roles of these credentials.
pub(crate) fn cluster_roles() -> Vec<CompletionCandidate> {
    of_access(|kinds| kinds.into_iter().flat_map(|kind| kind.roles).collect())
}

fn of_access(values: fn(Vec<AccessKind>) -> BTreeSet<String>) -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let Some(workload) = argument("workload") else { return Ok(Vec::new()) };
        let kinds = client.get_access(target.project, &workload).await?.kinds;
        Ok(values(kinds).into_iter().map(CompletionCandidate::new).collect())
    })
}

/// The members of the workload that the command line names, with removed ones.
pub(crate) fn members() -> Vec<CompletionCandidate> {
    members_if(|_| true)
}

/// The members of the workload that the command line names.
pub(crate) fn present_members() -> Vec<CompletionCandidate> {
    members_if(|member| member.state != "removed")
}

fn members_if(is_offered: fn(&Member) -> bool) -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let Some(workload) = argument("workload") else { return Ok(Vec::new()) };
        let members = client.list_members(target.project, &workload).await?.items.into_iter().filter(is_offered);
        Ok(members.map(|of| described(of.name, format!("{} {}", of.node_name, of.state))).collect())
    })
}

pub(crate) fn signing_keys() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let keys = client.list_signing_keys().await?.items;
        Ok(keys.into_iter().map(|key| described(key.id, key.state)).collect())
    })
}

/// The operations that have not ended.
pub(crate) fn open_operations() -> Vec<CompletionCandidate> {
    operations_if(|operation| operation.ended_at.is_none())
}

pub(crate) fn operations() -> Vec<CompletionCandidate> {
    operations_if(|_| true)
}

fn operations_if(is_offered: fn(&Operation) -> bool) -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let operations = client.list_operations(target.project, None, None).await?.items;
        Ok(operations
            .into_iter()
            .filter(is_offered)
            .map(|of| described(of.id, format!("{} {} {}", of.kind, of.workload_name, of.state)))
            .collect())
    })
}

pub(crate) fn tokens() -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let tokens =
            client.list_tokens(target.project).await?.items.into_iter().filter(|token| token.revoked_at.is_none());
        Ok(tokens.map(|token| described(token.id, format!("{} {}", token.name, token.role))).collect())
    })
}

pub(crate) fn sessions() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let sessions = client.list_sessions().await?.items;
        Ok(sessions.into_iter().map(|of| described(of.id, of.user_agent.unwrap_or_default())).collect())
    })
}

pub(crate) fn service_accounts() -> Vec<CompletionCandidate> {
    candidates(async |client, target| {
        let accounts = client.list_service_accounts(target.project).await?.items;
        Ok(accounts.into_iter().map(|account| described(account.name, account.role)).collect())
    })
}

pub(crate) fn apps() -> Vec<CompletionCandidate> {
    candidates(async |client, _| {
        let apps = client.list_apps().await?.items;
        Ok(apps.into_iter().map(|app| described(app.slug, app.name)).collect())
    })
}

fn described(value: String, help: String) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(help.into()))
}

fn candidates(
    ask: impl AsyncFnOnce(Client, Target) -> anyhow::Result<Vec<CompletionCandidate>>,
) -> Vec<CompletionCandidate> {
    let asked = || {
        let mut target = target()?;
        let client = connection::client(&target).ok()?;
        if target.project.is_none() {
            target.project = connection::context_project(&target).ok()?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let asked = runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask(client, target)).await });
        asked.ok()?.ok()
    };
    asked().unwrap_or_default()
}

/// Returns the global flags of the command line that is being completed.
fn target() -> Option<Target> {
    Target::from_arg_matches(&matches()?).ok()
}

/// Parses the command line that is being completed, which follows `--` in the arguments.
fn matches() -> Option<ArgMatches> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    help::command().ignore_errors(true).try_get_matches_from(words).ok()
}

/// Returns an argument of the command on the command line that is being completed.
fn argument(id: &str) -> Option<String> {
    deepest(&matches()?).try_get_one::<String>(id).ok().flatten().cloned()
}

fn deepest(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| deepest(below))
}
