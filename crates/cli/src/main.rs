//! Entry point of the `gpuaas` command.

mod cli;
mod commands;
mod connection;
mod contexts;
mod dev;
#[cfg(test)]
mod documented;
mod duration;
mod examples;
mod help;
mod output;
mod public_url;
mod runtime;
mod server_config;
mod suggestions;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (cli, settings) = server_config::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    if cli.command.ends_on_closed_pipe() {
        // A reader such as `head` that closes the pipe ends the command without an error.
        sigpipe::reset();
    }
    let format = cli.target.output;
    runtime::start(cli.command.needs_threads(), cli.command.log_format(), async move {
        match commands::run(cli, settings).await {
            Ok(code) => code,
            Err(error) => output::report_error(&error, format),
        }
    })
}
