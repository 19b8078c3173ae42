//! The node agent.
//!
//! Guarantees: it executes only task types of its catalog, only if the control plane signed the task for this node and enrollment, and the
//! task's validity includes the present; it executes each task at most once. It opens no listening port on the node. A task changes the node
//! only through the `Host` interface.
//!
//! Deliberately absent: a database, a web framework, and any way to run code that a task carries.

mod catalog;
mod clock;
mod control_connection;
mod crash_points;
mod dialer;
mod digested;
mod drift;
mod endpoints;
mod enroll;
mod error;
mod fetch;
mod handlers;
mod http_client;
mod ledger;
mod observe;
mod options;
mod paths;
mod renew;
mod runner;
mod service;
#[cfg(feature = "simulation")]
pub mod simulation;
mod state;
mod tunnel;
mod version;

use ledger::Ledger;

pub use error::AgentError;
pub use options::{Options, Verb};

use std::{io::Write, sync::Arc};

use gpuaas_host::{
    Host,
    sandbox::{SandboxEnvironment, SandboxHost},
    systemd::SystemdHost,
};

/// Enrolls if the node is not enrolled, then serves the control plane until the process ends; with a subcommand, runs that subcommand
/// instead.
pub async fn run(options: Options) -> Result<(), AgentError> {
    let host = host().await?;
    match options.verb {
        None => control_connection::run(host.clone(), enroll::load_enroll_or_keep(&host, &options).await?).await,
        Some(Verb::Enroll) => {
            let redeemed = enroll::load_or_enroll(&host, &options).await?;
            let how = if redeemed.is_new { "enrolled" } else { "already enrolled" };
            // The node is enrolled, also if standard output cannot be written.
            let _ = writeln!(std::io::stdout(), "{how} as {}", redeemed.state.identity.description());
            Ok(())
        }
        Some(Verb::Status) => {
            let kept =
                state::load(&host).await?.ok_or_else(|| AgentError::NotEnrolled(options.enroll_file.to_string()))?;
            print!("{}", kept.identity.status_lines());
            // Reports why the agent takes no tasks, if its ledger cannot be used.
            Ledger::check(&host, &kept.identity.expected_ledger()).await.map_err(AgentError::from)
        }
    }
}

/// Returns the host on which this process runs: a sandbox if the environment declares one, otherwise a machine booted with systemd.
async fn host() -> Result<Arc<dyn Host>, AgentError> {
    if let Some(environment) = SandboxEnvironment::from_process()? {
        return Ok(Arc::new(SandboxHost::new(environment)));
    }
    let host = SystemdHost::of_this_machine()?;
    host.check().await?;
    Ok(Arc::new(host))
}
