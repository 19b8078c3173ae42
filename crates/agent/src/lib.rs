//! The node agent.
//!
//! Guarantees: it executes only what its catalog holds, only when the control plane's key signed it for this node, this enrollment and this
//! time, and never twice; it opens nothing on the node; a task's effects go through the `host` port alone.
//!
//! Deliberately absent: a database, a web framework, and any way to run what a task's author wrote.

mod catalog;
mod clock;
mod context;
mod crash_points;
mod dial;
mod digested;
mod endpoints;
mod enroll;
mod error;
mod fetch;
mod handlers;
mod http_client;
mod ledger;
mod observe;
mod options;
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

use std::sync::Arc;

use gpuaas_host::{
    Host,
    sandbox::{SandboxEnvironment, SandboxHost},
    systemd::SystemdHost,
};

/// Enrolls if need be, then serves the control plane until it is told to end; or does what the options say instead.
pub async fn run(options: Options) -> Result<(), AgentError> {
    let host = host().await?;
    match options.verb {
        None => dial::run(host.clone(), enroll::identity_to_serve(&host, &options).await?).await,
        Some(Verb::Enroll) => {
            let redeemed = enroll::identity(&host, &options).await?;
            let how = if redeemed.is_new { "enrolled" } else { "already enrolled" };
            println!("{how} as {}", redeemed.state.identity.described());
            Ok(())
        }
        Some(Verb::Status) => {
            let kept =
                state::load(&host).await?.ok_or_else(|| AgentError::NotEnrolled(options.enroll_file.to_string()))?;
            print!("{}", kept.identity.lines());
            // Why it takes no tasks, where it does not.
            Ledger::look(&host, &kept.identity.expected_ledger()).await.map_err(AgentError::from)
        }
    }
}

/// The host that this process lives on. In a sandbox its environment says so; any other host is a machine that systemd has booted.
async fn host() -> Result<Arc<dyn Host>, AgentError> {
    if let Some(environment) = SandboxEnvironment::from_process()? {
        return Ok(Arc::new(SandboxHost::new(environment)));
    }
    let host = SystemdHost::of_this_machine()?;
    host.check().await?;
    Ok(Arc::new(host))
}
