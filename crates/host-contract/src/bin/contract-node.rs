//! The processes of the suite's nodes: a program that listens, and in sandboxes also the init, its `systemctl` and a program that sends
//! READY=1.

use std::{
    net::{IpAddr, TcpListener, UdpSocket},
    process::ExitCode,
};

use anyhow::{Context, bail};

fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args();
    let program = words.next().context("argument 0 is missing")?;
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
        ["listen", address] => listen(address.parse()?)?,
        _ => bail!("usage: contract-node init ROOT ADDRESS | systemctl ARGUMENT... | notify | listen ADDRESS"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Listens at an address for connections and datagrams, prints the ports, and keeps running.
fn listen(address: IpAddr) -> anyhow::Result<()> {
    let (tcp, udp) = (TcpListener::bind((address, 0))?, UdpSocket::bind((address, 0))?);
    println!("say: tcp {}", tcp.local_addr()?.port());
    println!("say: udp {}", udp.local_addr()?.port());
    loop {
        std::thread::park();
    }
}
