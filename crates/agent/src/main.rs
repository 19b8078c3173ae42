//! The node agent: dials the control plane and executes signed tasks; it accepts no connections.

use std::process::ExitCode;

use clap::Parser;
use gpuaas_agent::{Options, run};

/// Threads for blocking work (disk, name resolution), in addition to the single thread that runs everything else; each ends after ten idle
/// seconds.
const BLOCKING_THREADS_MAX: usize = 4;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let level = if options.verb.is_some() { "warn" } else { "info" };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("GPUAAS_LOG").unwrap_or_else(|_| level.into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // A failed write to the log would be reported on the same stderr, and a failed write to stderr panics.
        .log_internal_errors(false)
        .init();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let ended = runtime.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()?.block_on(run(options));
    Ok(ended.map_or_else(
        |error| {
            eprintln!("{}", error.explained());
            ExitCode::from(error.exit() as u8)
        },
        |()| ExitCode::SUCCESS,
    ))
}
