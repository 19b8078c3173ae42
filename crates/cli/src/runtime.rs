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
fn write_log(format: LogFormat) {
    let usual = || Targets::new().with_default(LevelFilter::WARN).with_target("gpuaas", LevelFilter::INFO);
    let asked = std::env::var("GPUAAS_LOG").ok();
    let (filter, wrong) = match asked.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (usual(), Some(error)),
        None => (usual(), None),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Colours only on a terminal: in a file they are noise.
        .with_ansi(std::io::stderr().is_terminal())
        // Without this, a log that cannot be written is reported on stderr, which cannot be written either, and that panics.
        .log_internal_errors(false);
    match format {
        LogFormat::People => tracing_subscriber::registry().with(lines).with(filter).init(),
        LogFormat::Json => tracing_subscriber::registry().with(lines.json().flatten_event(true)).with(filter).init(),
    }
    if let Some(error) = wrong {
        tracing::warn!(%error, "GPUAAS_LOG is not used: it is a level, or TARGET=LEVEL and a level, separated by commas");
    }
}

/// Runs `main` to completion: on several threads if `threads`, otherwise on one.
pub(crate) fn start(threads: bool, log: LogFormat, main: impl Future<Output = ExitCode>) -> ExitCode {
    write_log(log);
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
