//! Starts the process's log and asynchronous runtime.

use std::{io::IsTerminal, process::ExitCode};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::cli::LogFormat;

/// Logs to standard error, filtered by `GPUAAS_LOG` (for example `debug`, or `warn,gpuaas_engine=trace`). Without it, warnings of every crate
/// and information of the project's own.
fn init_logging(format: LogFormat) {
    let default_filter = || Targets::new().with_default(LevelFilter::WARN).with_target("gpuaas", LevelFilter::INFO);
    let requested = std::env::var("GPUAAS_LOG").ok();
    let (filter, parse_error) = match requested.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (default_filter(), Some(error)),
        None => (default_filter(), None),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Colours only on a terminal: in a file they are noise.
        .with_ansi(std::io::stderr().is_terminal())
        // Without this, a log that cannot be written is reported on stderr, which cannot be written either, and that panics.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => tracing_subscriber::registry().with(lines).with(filter).init(),
        LogFormat::Json => tracing_subscriber::registry().with(lines.json().flatten_event(true)).with(filter).init(),
    }
    if let Some(error) = parse_error {
        tracing::warn!(%error, "ignoring GPUAAS_LOG: expected LEVEL or TARGET=LEVEL, separated by commas");
    }
}

/// Runs `main` to completion: on several threads if `threads`, otherwise on one.
pub(crate) fn start(threads: bool, log: LogFormat, main: impl Future<Output = ExitCode>) -> ExitCode {
    init_logging(log);
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
            eprintln!("error: starting the runtime failed: {error}");
            ExitCode::FAILURE
        }
    }
}
