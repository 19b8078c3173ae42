//! The node agent: dials the control plane, executes signed tasks, listens to nobody.

use std::process::ExitCode;

use clap::Parser;
use gpuaas_agent::{Options, run};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Threads for what waits for a disk or a name server, beside the one for everything else; each ends after ten idle seconds.
const BLOCKING_THREADS_MAX: usize = 4;

/// Logs to standard error what `GPUAAS_LOG` lets through (`debug`, or `warn,gpuaas_agent=trace`), and what that level does where it is not set.
/// Targets, because spans and fields need a matcher of regular expressions, which is a tenth of this program.
fn log(usual: LevelFilter) {
    let asked = std::env::var("GPUAAS_LOG").ok();
    let (filter, wrong) = match asked.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (Targets::new().with_default(usual), Some(error)),
        None => (Targets::new().with_default(usual), None),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // A log that cannot be written would be complained of where it cannot be written either, and that panics.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(error) = wrong {
        tracing::warn!(%error, "GPUAAS_LOG is not used: it is a level, or TARGET=LEVEL and a level, separated by commas");
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    log(if options.verb.is_some() { LevelFilter::WARN } else { LevelFilter::INFO });
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
