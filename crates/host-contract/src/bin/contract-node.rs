//! What the suite's sandbox nodes run as processes of their own: the init, its `systemctl`, and a program that says READY=1.

use std::process::ExitCode;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args();
    let program = words.next().context("a program has a name")?;
    let words: Vec<String> = words.collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["init", root, address] => runtime.block_on(gpuaas_sandbox::run(gpuaas_sandbox::InitOptions {
            root: root.into(),
            hostname: "contract-node".to_owned(),
            address: address.parse()?,
            systemctl: vec![program, "systemctl".to_owned()],
            lifeline: true,
        }))?,
        ["systemctl", ..] => return Ok(ExitCode::from(runtime.block_on(gpuaas_sandbox::systemctl::run(&words[1..])))),
        ["notify"] => gpuaas_host::notify_ready()?,
        _ => bail!("init ROOT ADDRESS, systemctl WORDS or notify"),
    }
    Ok(ExitCode::SUCCESS)
}
