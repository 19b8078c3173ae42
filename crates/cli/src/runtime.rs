//! The asynchronous runtime and the log of a process.

use std::process::ExitCode;

/// Runs `main` to its end: on several threads for the control plane, on one for everything else.
pub(crate) fn start(threads: bool, main: impl Future<Output = ExitCode>) -> ExitCode {
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("GPUAAS_LOG").unwrap_or_else(|_| "warn,gpuaas=info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut builder = if threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    match builder.enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(main);
            // Blocking reads of standard input would hold the process up.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}
