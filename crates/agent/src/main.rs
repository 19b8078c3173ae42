//! The node agent: dials the control plane, executes signed tasks, listens to nobody.

use clap::Parser;
use gpuaas_agent::{Options, run};

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("GPUAAS_LOG").unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // A log that cannot be written would be complained of where it cannot be written either, and that panics.
        .log_internal_errors(false)
        .init();
    let options = Options::parse();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(options))?;
    Ok(())
}
