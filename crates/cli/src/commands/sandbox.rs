//! The hidden commands that run in sandbox nodes.

use std::process::ExitCode;

use anyhow::Context;

use crate::cli::SandboxInit;

/// Runs the init process of a sandbox node.
pub(crate) async fn init(options: SandboxInit) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let program = program.into_os_string().into_string().ok().context("the path of this program is not valid UTF-8")?;
    gpuaas_sandbox::run(gpuaas_sandbox::InitOptions {
        root: options.root,
        hostname: options.hostname,
        address: options.address,
        systemctl: vec![program, "sandbox-systemctl".to_owned(), "--".to_owned()],
        lifeline: options.lifeline,
    })
    .await?;
    Ok(())
}

/// Emulates systemctl in a sandbox node.
pub(crate) async fn systemctl(arguments: &[String]) -> ExitCode {
    ExitCode::from(gpuaas_sandbox::systemctl::run(arguments).await)
}
