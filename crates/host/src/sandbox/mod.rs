//! The sandbox backend: a folder, a loopback address and a small init that stands for systemd.

mod client;
mod environment;
mod facts;
mod files;
mod own;
mod program;
pub mod protocol;

pub use client::InitClient;
pub use environment::{ADDRESS, CLOCK_SKEW, HOSTNAME, ROOT, SOCKET, SandboxEnvironment, UNIT, clock_skew_seconds};
pub use facts::processes_marked;
pub use program::spawn;

use async_trait::async_trait;
use camino::Utf8Path;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    error::HostError,
    file::{Changed, FileSpec},
    host::{Command, CommandEnd, Facts, Host, Process},
    inventory::Listener,
    survey::Tree,
    unit::{JournalFrom, JournalLine, UnitStatus},
};
use protocol::{Reply, Request};

/// A sandbox node.
#[derive(Clone, Debug)]
pub struct SandboxHost {
    environment: SandboxEnvironment,
    init: InitClient,
}

impl SandboxHost {
    /// The sandbox that this process lives in.
    pub fn new(environment: SandboxEnvironment) -> Self {
        Self { init: InitClient::new(environment.socket.clone()), environment }
    }

    async fn changed(&self, request: Request) -> Result<Changed, HostError> {
        match self.init.ask(request).await? {
            Reply::Changed(true) => Ok(Changed::Yes),
            Reply::Changed(false) => Ok(Changed::No),
            other => Err(HostError::Init(format!("it answered {other:?}"))),
        }
    }
}

#[async_trait]
impl Host for SandboxHost {
    async fn write(&self, file: &FileSpec) -> Result<Changed, HostError> {
        files::write(&self.environment, file)
    }

    async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError> {
        files::read(&self.environment, path, bytes_max)
    }

    async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError> {
        files::remove(&self.environment, path)
    }

    async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
        files::make_folder(&self.environment, path, mode)
    }

    async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError> {
        files::exists(&self.environment, path)
    }

    async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError> {
        files::list(&self.environment, path)
    }

    async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError> {
        files::size(&self.environment, path)
    }

    async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError> {
        let real = self.environment.resolve_followed(path)?;
        let file = tokio::fs::File::open(&real).await.map_err(HostError::file("open", path))?;
        Ok(Box::new(file))
    }

    async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError> {
        let file = files::open_append(&self.environment, path)?;
        Ok(Box::new(tokio::fs::File::from_std(file)))
    }

    async fn sync(&self, path: &Utf8Path) -> Result<(), HostError> {
        files::sync(&self.environment, path)
    }

    async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError> {
        files::rename(&self.environment, from, to)
    }

    async fn copy(&self, from: &Utf8Path, to: &Utf8Path, mode: u32) -> Result<Changed, HostError> {
        files::copy(&self.environment, from, to, mode)
    }

    async fn run(&self, command: &Command) -> Result<CommandEnd, HostError> {
        facts::run(&self.environment, command).await
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

    async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError> {
        match self.init.ask(Request::Status { unit: unit.to_owned() }).await? {
            Reply::Status(status) => Ok(status),
            other => Err(HostError::Init(format!("it answered {other:?}"))),
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
        facts::facts(&self.environment)
    }

    fn address(&self) -> std::net::IpAddr {
        self.environment.address
    }

    async fn listening(&self, ports: &[u16]) -> Result<Vec<u16>, HostError> {
        facts::listening(&self.environment, ports)
    }

    async fn processes(&self, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
        facts::processes(&self.environment, prefixes)
    }

    async fn mounts(&self, prefixes: &[String]) -> Result<Vec<String>, HostError> {
        facts::mounts(&self.environment, prefixes)
    }

    async fn listeners(&self) -> Result<Vec<Listener>, HostError> {
        own::listeners(&self.environment)
    }

    /// It shares its machine's network and has no link of its own.
    async fn links(&self) -> Result<Vec<String>, HostError> {
        Ok(Vec::new())
    }

    /// It shares its machine's packet filter and has no rule of its own.
    async fn firewall_rules(&self, _words: &[String]) -> Result<Option<Vec<String>>, HostError> {
        Ok(Some(Vec::new()))
    }

    fn tree(&self) -> Tree {
        Tree::of_sandbox(self.environment.root.clone())
    }

    async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
        own::load_module(&self.tree(), name)
    }
}
