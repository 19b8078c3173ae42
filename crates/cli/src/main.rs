//! Entry point of the `gpuaas` command.

// They panic if the output cannot be written; `output` has functions that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(test)]
mod advised_commands;
mod cli;
mod color;
mod commands;
mod completion;
mod connection;
mod contexts;
mod dev;
#[cfg(test)]
mod documented;
mod duration;
mod environment;
mod examples;
mod help;
mod jsonpath;
mod kubeconfig;
mod markdown;
mod output;
mod public_url;
mod releases;
mod runtime;
mod server_config;
mod setting;
mod settings_file;
mod suggestions;
mod table;
mod target;
mod text;
mod traces;
mod values;

use std::process::ExitCode;

use clap_complete::CompleteEnv;

fn main() -> ExitCode {
    // Answers a shell that asks for completions, and ends.
    CompleteEnv::with_factory(help::completed_command).complete();
    let (cli, settings) = match server_config::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(rejected) => {
            sigpipe::reset();
            return rejected.report();
        }
    };
    if cli.command.ends_on_closed_pipe() {
        // A reader such as `head` that closes the pipe ends the command without an error.
        sigpipe::reset();
    }
    let (format, project_flag) = (cli.target.output, cli.target.project_flag());
    color::init(cli.target.color);
    let (log_format, collector) = (cli.command.log_format(), cli.command.collector());
    runtime::start(cli.command.needs_threads(), log_format, collector, async move {
        match commands::run(cli, settings).await {
            Ok(code) => code,
            Err(error) => output::report_error(&error, format, &project_flag),
        }
    })
}
