//! `gpuaas`: the command a person types.

mod cli;
mod commands;
mod connection;
mod contexts;
mod dev;
#[cfg(test)]
mod documented;
mod duration;
mod output;
mod runtime;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    runtime::start(cli.command.needs_threads(), async move {
        match commands::run(cli).await {
            Ok(code) => code,
            Err(error) => output::failed(&error),
        }
    })
}
