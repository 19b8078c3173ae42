//! What each verb does, one file per noun.

mod allocation;
mod app;
mod audit;
mod event;
mod node;
mod operation;
mod project;
mod sandbox;
mod server;
mod task;
mod token;
mod whoami;
mod workload;

use std::process::ExitCode;

use clap::CommandFactory;

use crate::{
    cli::{Cli, Command},
    connection, dev,
};

/// Runs the command that was typed.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let target = cli.target;
    match cli.command {
        Command::Node(verb) => node::run(&connection::client(&target)?, &target, verb).await?,
        Command::Project(verb) => project::run(&connection::client(&target)?, &target, verb).await?,
        Command::Allocation(verb) => allocation::run(&connection::client(&target)?, &target, verb).await?,
        Command::Token(verb) => token::run(&connection::client(&target)?, &target, verb).await?,
        Command::App(verb) => app::apps(&connection::client(&target)?, &target, verb).await?,
        Command::Artifact(verb) => app::artifacts(&connection::client(&target)?, &target, verb).await?,
        Command::Workload(verb) => return workload::run(&connection::client(&target)?, &target, verb).await,
        Command::Operation(verb) => return operation::run(&connection::client(&target)?, &target, verb).await,
        Command::Task(verb) => task::run(&connection::client(&target)?, &target, verb).await?,
        Command::Event(verb) => event::run(&connection::client(&target)?, &target, verb).await?,
        Command::Audit(verb) => audit::run(&connection::client(&target)?, &target, verb).await?,
        Command::Whoami => whoami::run(&connection::client(&target)?, &target).await?,
        Command::Server(options) => server::run(options).await?,
        Command::Dev(options) => dev::run(options).await?,
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "gpuaas", &mut std::io::stdout());
        }
        Command::SandboxInit(options) => sandbox::init(options).await?,
        Command::SandboxSystemctl { arguments } => return Ok(sandbox::systemctl(&arguments).await),
    }
    Ok(ExitCode::SUCCESS)
}
