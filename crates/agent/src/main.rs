//! The node agent: dials the control plane and executes signed tasks; it accepts no connections.

use std::{io::Write, process::ExitCode};

use clap::Parser;
use gpuaas_agent::{Options, run};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Threads for blocking work (disk, name resolution), in addition to the single thread that runs everything else; each ends after ten idle
/// seconds.
const BLOCKING_THREADS_MAX: usize = 4;

/// Logs to standard error, filtered by `GPUAAS_LOG` (for example `debug`, or `warn,gpuaas_agent=trace`), or by `default` if it is not set. Filters
/// by target only: filters by span and field would add a regular expression engine, which is a tenth of this program.
fn init_logging(default: LevelFilter) {
    let configured = std::env::var("GPUAAS_LOG").ok();
    let (filter, parse_error) = match configured.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (Targets::new().with_default(default), Some(error)),
        None => (Targets::new().with_default(default), None),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // A failed write to the log would be reported on the same stderr, and a failed write to stderr panics.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(error) = parse_error {
        tracing::warn!(%error, "ignoring GPUAAS_LOG: expected LEVEL or TARGET=LEVEL, separated by commas");
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    init_logging(if options.verb.is_some() { LevelFilter::WARN } else { LevelFilter::INFO });
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let ended = runtime.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()?.block_on(run(options));
    Ok(ended.map_or_else(
        |error| {
            // The exit status tells systemd whether to restart, also if standard error cannot be written.
            let _ = writeln!(std::io::stderr(), "{}", error.user_message());
            ExitCode::from(error.exit() as u8)
        },
        |()| ExitCode::SUCCESS,
    ))
}
