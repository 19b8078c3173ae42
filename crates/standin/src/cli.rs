//! The command line: `--version`, `help`, `server`, `agent`, a list of the faults that can be injected, and internal commands for child processes. Refuses RKE2's other commands
//! by name.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::booted::child;
use crate::paths::{DEFAULT_DATA_DIR, HostPaths};
use crate::settings::{Role, Settings};
use crate::{agent, booted, counters, faults, log, pods, server, version};

const USAGE: &str = "rke2 (stand-in) - replaces RKE2 in tests\n\nUSAGE:\n   rke2 server|agent [--config FILE] [--KEY VALUE]...\n   \
                     rke2 stand-in-faults\n   rke2 --version";

/// Runs the command that `arguments` name; without arguments, prints the usage.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    match arguments.first().map(String::as_str) {
        Some("--version" | "-v") => {
            println!("{}", version::text());
            ExitCode::SUCCESS
        }
        Some("server") => serve(Role::Server, &arguments[1..]),
        Some("agent") => serve(Role::Agent, &arguments[1..]),
        Some(pods::COMMAND) => pods::run_process(),
        Some(child::COMMAND) => child::become_program(&arguments[1..]),
        Some("stand-in-faults") => {
            print!("{}", faults::table());
            ExitCode::SUCCESS
        }
        None | Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            log::fatal!("No help topic for '{other}' (the stand-in has server and agent)");
            ExitCode::FAILURE
        }
    }
}

fn serve(role: Role, arguments: &[String]) -> ExitCode {
    let host = HostPaths::new(HostPaths::root_from_env(), DEFAULT_DATA_DIR);
    counters::record(&host, role.name(), "start");
    match start(role, arguments) {
        Ok(()) => {
            counters::record(&host, role.name(), "stop");
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::fatal!("{error:#}");
            counters::record(&host, role.name(), "exit");
            ExitCode::FAILURE
        }
    }
}

fn start(role: Role, arguments: &[String]) -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is installed already"))?;
    // One thread is enough: this process mostly waits for other processes.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let settings = Settings::load(role, arguments)?;
        let work = async {
            let faults = match role {
                Role::Server => server::begin(&settings)?,
                Role::Agent => agent::begin(&settings)?,
            };
            match (role, settings.paths.in_sandbox()) {
                (Role::Server, true) => server::run(settings, faults).await,
                (Role::Server, false) => booted::server::run(settings, faults).await,
                (Role::Agent, true) => agent::run(settings, faults).await,
                (Role::Agent, false) => booted::agent::run(settings, faults).await,
            }
        };
        let received = tokio::select! {
            result = work => return result,
            _ = terminate.recv() => "terminated",
            _ = interrupt.recv() => "interrupt",
        };
        // The components keep running, as they do when RKE2's unit is stopped; rke2-killall.sh ends them.
        log::info!("Shutdown request received: signal received: {received}");
        Ok(())
    })
}
