//! Starts the process's log, its traces and its asynchronous runtime.

use std::{io::IsTerminal, process::ExitCode};

use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::{
    cli::LogFormat,
    environment, output,
    traces::{self, Collector, Traces},
};

/// Logs to standard error, filtered by `GPUAAS_LOG` (for example `debug`, or `warn,gpuaas_engine=trace`). Without it, warnings of every crate
/// and information of the project's own. Sends traces to a collector, if there is one; `GPUAAS_LOG` does not filter them.
fn init_logging(format: LogFormat, collector: Option<&Collector>) -> anyhow::Result<Option<Traces>> {
    let default_filter = || Targets::new().with_default(LevelFilter::WARN).with_target("gpuaas", LevelFilter::INFO);
    let requested = environment::variable("GPUAAS_LOG");
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
    let (layer, traces) = collector.map(traces::start).transpose()?.unzip();
    let registry = tracing_subscriber::registry().with(layer.map(|layer| layer.with_filter(default_filter())));
    match format {
        LogFormat::Text => registry.with(lines.with_filter(filter)).init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true).with_filter(filter)).init(),
    }
    if let Some(error) = parse_error {
        tracing::warn!(%error, "ignoring GPUAAS_LOG: expected LEVEL or TARGET=LEVEL, separated by commas");
    }
    Ok(traces)
}

/// Runs `main` to completion: on several threads if `threads`, otherwise on one.
pub(crate) fn start(
    threads: bool,
    log: LogFormat,
    collector: Option<Collector>,
    main: impl Future<Output = ExitCode>,
) -> ExitCode {
    let mut builder = if threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::message(format_args!("error: starting the runtime failed: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let _entered = runtime.enter();
    let traces = match init_logging(log, collector.as_ref()) {
        Ok(traces) => traces,
        Err(error) => {
            output::message(format_args!("error: starting the export of traces failed: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(main);
    if let Some(traces) = traces {
        traces.send_rest();
    }
    // Do not wait for blocking reads of standard input.
    runtime.shutdown_background();
    code
}
