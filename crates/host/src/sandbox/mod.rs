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
use camino::Utf8Path;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    digest::ContentId,
    error::HostError,
    file::{Changed, FileSpec},
    files::Files,
    host::{Command, CommandEnd, Durable, Facts, Host},
    inventory::{Listener, Process},
    journal::{JournalFrom, JournalLine},
    machine, program,
    root::Root,
    sockets,
    survey::Tree,
    unit::UnitStatus,
};
use protocol::{Reply, Request};

/// A sandbox node.
#[derive(Clone, Debug)]
pub struct SandboxHost {
    environment: SandboxEnvironment,
    files: Files,
    init: InitClient,
}

impl SandboxHost {
    /// Returns the sandbox that this process belongs to.
    pub fn new(environment: SandboxEnvironment) -> Self {
        let (init, root) = (InitClient::new(environment.socket.clone()), Root::new(environment.root.clone()));
        Self { environment, files: Files::under(root), init }
    }

    async fn changed(&self, request: Request) -> Result<Changed, HostError> {
        match self.init.ask(request).await? {
            Reply::Changed(true) => Ok(Changed::Yes),
            Reply::Changed(false) => Ok(Changed::No),
            other => Err(HostError::Init(format!("unexpected reply {other:?}"))),
        }
    }
}

#[async_trait]
impl Host for SandboxHost {
    async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
        self.files.write(file).await
    }

    async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
        self.files.read(path, bytes_max).await
    }

    async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        self.files.remove(path).await
    }

    async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        self.files.remove_empty_folder(path).await
    }

    async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
        self.files.make_folder(path, mode).await
    }

    async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
        self.files.exists(path).await
    }

    async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError> {
        self.files.list(path).await
    }

    async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
        self.files.size(path).await
    }

    async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError> {
        Ok(Box::new(self.files.open(path).await?))
    }

    async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError> {
        Ok(Box::new(self.files.append(path).await?))
    }

    async fn sync(&self, path: &Utf8Path) -> Result<(), HostError> {
        self.files.sync(path).await
    }

    async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
        self.files.append_bytes(path, content, durable).await
    }

    async fn overwrite(&self, path: &Utf8Path, at: u64, content: Vec<u8>, durable: Durable) -> Result<(), HostError> {
        self.files.overwrite(path, at, content, durable).await
    }

    async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
        self.files.rename(from, to).await
    }

    async fn read_verified(&self, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError> {
        self.files.read_verified(path, id).await
    }

    async fn has_content(&self, path: &Utf8Path, id: ContentId) -> Result<bool, HostError> {
        self.files.has_content(path, id).await
    }

    async fn copy_verified(
        &self,
        from: &Utf8Path,
        to: &Utf8Path,
        mode: u32,
        id: ContentId,
    ) -> Result<Changed, HostError> {
        self.files.copy_verified(from, to, mode, id).await
    }

    async fn run(&self, command: &Command) -> Result<CommandEnd, HostError> {
        let mut program = tokio::process::Command::new(self.files.root().program(&command.program)?.as_std_path());
        // A program that a unit's process runs belongs to the unit, and ends with it.
        let unit = std::env::var_os(UNIT).map(|unit| (UNIT, unit));
        program.env_clear().envs(self.environment.variables()).envs(unit);
        program::run(program, command).await
    }

    async fn daemon_reload(&self) -> Result<(), HostError> {
        self.changed(Request::DaemonReload).await.map(|_| ())
    }

    async fn start(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Start { unit: unit.to_owned(), wait: false }).await
    }

    async fn stop(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Stop { unit: unit.to_owned() }).await
    }

    async fn enable(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Enable { unit: unit.to_owned(), enabled: true }).await
    }

    async fn disable(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Enable { unit: unit.to_owned(), enabled: false }).await
    }

    async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError> {
        match self.unit(unit).await? {
            Some(status) if status.active == "inactive" => Ok(Changed::No),
            _ => self.changed(Request::ResetFailed { unit: unit.to_owned() }).await,
        }
    }

    async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError> {
        match self.init.ask(Request::Status { unit: unit.to_owned() }).await? {
            Reply::Status(status) => Ok(status),
            other => Err(HostError::Init(format!("unexpected reply {other:?}"))),
        }
    }

    async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
        self.init.statuses(unit).await
    }

    async fn journal(
        &self,
        unit: &str,
        from: JournalFrom,
        follow: bool,
    ) -> Result<BoxStream<'static, JournalLine>, HostError> {
        self.init.journal(unit, from, follow).await
    }

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

    fn tree(&self) -> Tree {
        Tree::of_sandbox(self.environment.root.clone())
    }

    async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
        modules::load_module(&self.tree(), name)
    }
}
