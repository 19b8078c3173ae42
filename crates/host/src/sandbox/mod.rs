//! The sandbox backend: a folder, a loopback address and a small init in place of systemd.

mod client;
mod environment;
mod inventory;
mod modules;
pub mod protocol;

pub use client::InitClient;
pub use environment::{ADDRESS, CLOCK_SKEW, HOSTNAME, ROOT, SOCKET, SandboxEnvironment, UNIT, clock_skew_seconds};
pub use inventory::processes_marked;

use async_trait::async_trait;
use camino::Utf8PathBuf;
use futures::stream::BoxStream;

use crate::{
    changes,
    error::HostError,
    file::Changed,
    host::{Command, CommandEnd, Facts, Files, Host, Inventory, Units},
    inventory::{Listener, Process},
    machine, program,
    root::Root,
    root_files::RootFiles,
    sockets,
    survey::Tree,
};

/// A sandbox node.
#[derive(Clone, Debug)]
pub struct SandboxHost {
    environment: SandboxEnvironment,
    files: RootFiles,
    init: InitClient,
}

impl SandboxHost {
    /// Returns the sandbox that this process belongs to.
    pub fn new(environment: SandboxEnvironment) -> Self {
        let (init, root) = (InitClient::new(environment.socket.clone()), Root::new(environment.root.clone()));
        Self { environment, files: RootFiles::under(root), init }
    }
}

#[async_trait]
impl Host for SandboxHost {
    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn units(&self) -> &dyn Units {
        &self.init
    }

    fn inventory(&self) -> &dyn Inventory {
        self
    }

    async fn run(&self, command: &Command) -> Result<CommandEnd, HostError> {
        let mut program = tokio::process::Command::new(self.files.root().program(&command.program)?.as_std_path());
        // A program that a unit's process runs belongs to the unit, and ends with it.
        let unit = std::env::var_os(UNIT).map(|unit| (UNIT, unit));
        program.env_clear().envs(self.environment.variables()).envs(unit);
        program::run(program, command).await
    }

    async fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
        self.tree().set_sysctl(name, value)
    }

    async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
        modules::load_module(&self.tree(), name)
    }
}

#[async_trait]
impl Inventory for SandboxHost {
    async fn facts(&self) -> Result<Facts, HostError> {
        let hostname = self.environment.hostname.clone();
        let addresses = vec![self.environment.address];
        machine::facts(self.files.root(), machine::Identity { hostname, addresses, sandbox: true })
    }

    fn address(&self) -> std::net::IpAddr {
        self.environment.address
    }

    async fn listening(&self, ports: &[u16]) -> Result<Vec<u16>, HostError> {
        sockets::listening(self.environment.address, ports)
    }

    async fn listeners(&self) -> Result<Vec<Listener>, HostError> {
        inventory::listeners(&self.environment)
    }

    async fn processes(&self, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
        inventory::processes(&self.environment, prefixes)
    }

    async fn mounts(&self, prefixes: &[String]) -> Result<Vec<String>, HostError> {
        inventory::mounts(&self.environment, prefixes)
    }

    /// Returns none: a sandbox shares its machine's network.
    async fn links(&self) -> Result<Vec<String>, HostError> {
        Ok(Vec::new())
    }

    /// Returns none: a sandbox shares its machine's packet filter.
    async fn firewall_rules(&self, _substrings: &[String]) -> Result<Option<Vec<String>>, HostError> {
        Ok(Some(Vec::new()))
    }

    async fn changes(&self, paths: &[Utf8PathBuf]) -> Result<BoxStream<'static, ()>, HostError> {
        changes::changes(self.files.root(), paths)
    }

    fn tree(&self) -> Tree {
        Tree::of_sandbox(self.environment.root.clone())
    }
}
