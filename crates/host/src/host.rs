//! The port: what handlers of tasks may ask of a host.

use std::time::Duration;

use async_trait::async_trait;
use camino::{Utf8Path, Utf8PathBuf};
use futures::stream::BoxStream;
use gpuaas_wire::task::HostFacts;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    digest::ContentId,
    error::HostError,
    file::{Changed, FileSpec},
    inventory::{Listener, Process},
    journal::{JournalFrom, JournalLine},
    survey::{self, Tree},
    unit::UnitStatus,
};

/// What a host says of itself; the shape that tasks return.
pub type Facts = HostFacts;

/// A program to be run to its end.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program's true path.
    pub program: Utf8PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables of its environment, besides those that the host gives every program.
    pub environment: Vec<(String, String)>,
    /// It is killed after this long.
    pub timeout: Duration,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// The end of what it wrote, at most [`CommandEnd::OUTPUT_BYTES_MAX`].
    pub output: String,
}

impl CommandEnd {
    /// Most output kept, in bytes.
    pub const OUTPUT_BYTES_MAX: usize = 16 * 1_024;
}

/// Most rules of a packet filter told at once.
pub const FIREWALL_RULES_MAX: usize = 1_000;

/// When what was written is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// When the call returns, with everything that was written to the file before.
    OnReturn,
    /// With the next write to the same file that is durable on return, or earlier.
    Later,
}

/// What an operation may do to a host. Implemented for sandboxes and for systemd.
///
/// Every change is idempotent: repeating it after a crash ends in the same state and reports [`Changed::No`]. No file operation follows a link,
/// opens anything but a regular file, or leaves the host's root: links, pipes and devices in its way are refused with [`HostError::Unfit`].
#[async_trait]
pub trait Host: Send + Sync {
    /// Makes a file be as described: whole and durable, or as it was before.
    async fn write(&self, file: &FileSpec) -> Result<Changed, HostError>;
    /// The content of a file; `None` when there is none.
    async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError>;
    /// Removes a file, a link itself, or a whole folder; one that holds a mount is not emptied.
    async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError>;
    /// Removes a folder that is empty, at once and nothing else: what holds something, is mounted on, or is a link or a file stays.
    async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError>;
    /// Makes a folder, and those above it.
    async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError>;
    /// Whether something is there, a dangling link included.
    async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError>;
    /// Names in a folder, sorted; empty when there is no such folder.
    async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError>;
    /// Length of a regular file; `None` when there is none.
    async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError>;
    /// Opens a regular file for reading.
    async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError>;
    /// Opens a file of mode 0600 for appending; made when absent. What is written is durable after [`Host::sync`].
    async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError>;
    /// Makes a file's content durable.
    async fn sync(&self, path: &Utf8Path) -> Result<(), HostError>;
    /// Adds to a file that is there. A crash before it is durable leaves some beginning of what was added.
    async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError>;
    /// Writes over bytes that a file has, from `at` on. A crash before it is durable leaves any of these bytes old or new, and all others as they were.
    async fn overwrite(&self, path: &Utf8Path, at: u64, content: Vec<u8>, durable: Durable) -> Result<(), HostError>;
    /// Gives a file another name in one step.
    async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError>;
    /// The content of a file that holds exactly that, checked in the memory that is returned;
    /// [`HostError::OtherBytes`] where it holds something else.
    async fn read_verified(&self, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError>;
    /// Whether a file is there that holds exactly that, and that only the agent's own user may write.
    async fn holds(&self, path: &Utf8Path, id: ContentId) -> Result<bool, HostError>;
    /// Puts a copy of a file (sharing its blocks where the file system can) under another name, if the copy holds exactly that; else
    /// [`HostError::OtherBytes`], and nothing is changed.
    async fn copy_verified(
        &self,
        from: &Utf8Path,
        to: &Utf8Path,
        mode: u32,
        id: ContentId,
    ) -> Result<Changed, HostError>;

    /// Runs a program to its end.
    async fn run(&self, command: &Command) -> Result<CommandEnd, HostError>;

    /// Reads unit files anew.
    async fn daemon_reload(&self) -> Result<(), HostError>;
    /// Orders a unit to start, without waiting for it: RKE2's start would wait without end. One that runs or is on its way changes nothing;
    /// of two who order it at the same moment both may be told that it changed, and it is started once.
    async fn start(&self, unit: &str) -> Result<Changed, HostError>;
    /// Stops a unit and waits until it is.
    async fn stop(&self, unit: &str) -> Result<Changed, HostError>;
    /// Makes a unit start at boot. One that says nowhere when it is wanted is refused.
    async fn enable(&self, unit: &str) -> Result<Changed, HostError>;
    /// Makes a unit start at boot no more. What runs goes on, and what is not there starts at no boot.
    async fn disable(&self, unit: &str) -> Result<Changed, HostError>;
    /// Forgets that a unit failed, and how often it was started. It may be started again at once.
    async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError>;
    /// How a unit is; `None` when the init does not know it.
    async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError>;
    /// How a unit is now and after every change, until the stream is dropped, the unit is removed or the
    /// init ends; nothing at all when there is no such unit.
    async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError>;
    /// A unit's journal; goes on with new lines when `follow`.
    async fn journal(
        &self,
        unit: &str,
        from: JournalFrom,
        follow: bool,
    ) -> Result<BoxStream<'static, JournalLine>, HostError>;

    /// What the host says of itself.
    async fn facts(&self) -> Result<Facts, HostError>;
    /// The address that services of the node listen on.
    fn address(&self) -> std::net::IpAddr;
    /// TCP ports of `ports` on which something listens at the node's own address.
    async fn listening(&self, ports: &[u16]) -> Result<Vec<u16>, HostError>;
    /// Every socket of the node's own that waits for whoever comes.
    async fn listeners(&self) -> Result<Vec<Listener>, HostError>;
    /// Processes of the node whose program lies under one of the prefixes; all without one.
    async fn processes(&self, prefixes: &[String]) -> Result<Vec<Process>, HostError>;
    /// Mounts of the node under one of the prefixes.
    async fn mounts(&self, prefixes: &[String]) -> Result<Vec<String>, HostError>;
    /// Names of the node's own network links, sorted.
    async fn links(&self) -> Result<Vec<String>, HostError>;
    /// Chains and rules of the node's own packet filter that hold one of the words, [`FIREWALL_RULES_MAX`] at most; `None` when the node has
    /// no program that lists them.
    async fn firewall_rules(&self, words: &[String]) -> Result<Option<Vec<String>>, HostError>;

    /// Where the node's own files lie, for whoever only reads what the machine tells of itself.
    fn tree(&self) -> Tree {
        Tree::of_this_machine()
    }
    /// Sets a kernel parameter that there is, until the next boot.
    async fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
        self.tree().set_sysctl(name, value)
    }
    /// Loads a kernel module, until the next boot.
    async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
        survey::load_module(self, name).await
    }
}
