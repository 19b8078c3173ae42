//! Entry point of the `gpuaas` command.

mod cli;
mod commands;
mod connection;
mod contexts;
mod dev;
#[cfg(test)]
mod documented;
mod duration;
mod output;
mod public_url;
mod runtime;
mod server_config;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (cli, settings) = server_config::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    runtime::start(cli.command.needs_threads(), cli.command.log_format(), async move {
        match commands::run(cli, settings).await {
            Ok(code) => code,
            Err(error) => output::failed(&error),
        }
    })
}
