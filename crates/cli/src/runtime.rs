//! Starts the process's log and asynchronous runtime.

use std::{io::IsTerminal, process::ExitCode};

use crate::cli::LogFormat;

/// Runs `main` to completion: on several threads if `threads`, otherwise on one.
pub(crate) fn start(threads: bool, log: LogFormat, main: impl Future<Output = ExitCode>) -> ExitCode {
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("GPUAAS_LOG").unwrap_or_else(|_| "warn,gpuaas=info".into());
    // Colours only on a terminal: in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    let log_of = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        // Without this, a log that cannot be written is reported on stderr, which cannot be written either, and that panics.
        .log_internal_errors(false);
    match log {
        LogFormat::People => log_of.init(),
        LogFormat::Json => log_of.json().flatten_event(true).init(),
    }
    let mut builder = if threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    match builder.enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(main);
            // Do not wait for blocking reads of standard input.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}
