//! Implements the commands, one file per noun: its arguments, API calls and output.

pub(crate) mod allocation;
pub(crate) mod app;
pub(crate) mod archive;
pub(crate) mod artifact;
pub(crate) mod audit;
mod audit_chain;
pub(crate) mod bootstrap;
pub(crate) mod confirm;
pub(crate) mod context;
pub(crate) mod event;
mod explain;
mod following;
mod if_match;
pub(crate) mod keys;
mod lists;
pub(crate) mod login;
mod logs;
mod man;
mod named_nodes;
pub(crate) mod node;
mod node_shown;
pub(crate) mod operation;
mod operation_shown;
pub(crate) mod overwrite;
mod plan_args;
mod plan_shown;
pub(crate) mod project;
pub(crate) mod replica;
mod sandbox;
pub(crate) mod server;
pub(crate) mod service_account;
pub(crate) mod session;
pub(crate) mod support;
pub(crate) mod task;
pub(crate) mod token;
mod waiting_shown;
mod watching;
mod whoami;
pub(crate) mod workload;
mod workload_diff;
mod workload_next;
pub(crate) mod workload_operations;
mod workload_report;
mod workload_shown;

use std::process::ExitCode;

use gpuaas_client::Client;

use crate::{
    cli::{Cli, Command},
    completion, connection, dev, help,
    output::{self, TimedOut},
    setting::Setting,
    target::{ProjectSource, Target},
};

/// Runs the command, for at most `--timeout`.
pub(crate) async fn run(cli: Cli, settings: Vec<Setting>) -> anyhow::Result<ExitCode> {
    let Cli { mut target, command } = cli;
    match target.timeout {
        Some(timeout) => match tokio::time::timeout(timeout, dispatch(&mut target, command, &settings)).await {
            Ok(ended) => ended,
            Err(_) => Err(TimedOut { limit: timeout, awaited: target.awaited.take() }.into()),
        },
        None => dispatch(&mut target, command, &settings).await,
    }
}

async fn dispatch(target: &mut Target, command: Command, settings: &[Setting]) -> anyhow::Result<ExitCode> {
    match command {
        Command::Node(verb) => node::run(&connect(target)?, target, verb).await?,
        Command::Replica(verb) => replica::run(&connect(target)?, target, verb).await?,
        Command::Project(verb) => project::run(&connect(target)?, target, verb).await?,
        Command::Allocation(verb) => return allocation::run(&connect(target)?, target, verb).await,
        Command::Bootstrap(options) => bootstrap::run(target, options).await?,
        Command::Login(options) => login::run(&connect(target)?, target, options).await?,
        Command::Session(verb) => session::run(&connect(target)?, target, verb).await?,
        Command::Token(verb) => token::run(&connect(target)?, target, verb).await?,
        Command::ServiceAccount(verb) => service_account::run(&connect(target)?, target, verb).await?,
        Command::Keys(verb) => keys::run(&connect(target)?, target, verb).await?,
        Command::Support(verb) => support::run(&connect(target)?, target, verb).await?,
        Command::App(verb) => app::run(&connect(target)?, target, verb).await?,
        Command::Artifact(verb) => artifact::run(&connect(target)?, target, verb).await?,
        Command::Workload(verb) => return workload::run(&connect(target)?, target, verb).await,
        Command::Operation(verb) => return operation::run(&connect(target)?, target, verb).await,
        Command::Task(verb) => task::run(&connect(target)?, target, verb).await?,
        Command::Event(verb) => event::run(&connect(target)?, target, verb).await?,
        Command::Archive(verb) => archive::run(&connect(target)?, target, verb).await?,
        Command::Audit(verb) => return audit::run(&connect(target)?, target, verb).await,
        Command::Whoami => whoami::run(&connect(target)?, target).await?,
        Command::Context(verb) => context::run(target, verb).await?,
        Command::Version => whoami::version(target).await?,
        Command::Flags => output::write(help::flags())?,
        Command::Explain { code } => explain::run(target, code.as_deref())?,
        Command::Server(options) => return server::run(target, *options, settings).await,
        Command::Dev(options) => dev::run(options).await?,
        Command::Completion { shell } => completion::print_registration(shell)?,
        Command::Man { folder } => man::write(&folder)?,
        Command::SandboxInit(options) => sandbox::init(options).await?,
        Command::SandboxSystemctl { arguments } => return Ok(sandbox::systemctl(&arguments).await),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a client of the chosen control plane, and sets the target's project from the context if it has none.
fn connect(target: &mut Target) -> anyhow::Result<Client> {
    let client = connection::client(target)?;
    if target.project.is_none() {
        target.project = connection::context_project(target)?;
        target.project_source = ProjectSource::Context;
    }
    Ok(client)
}
