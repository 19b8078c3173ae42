//! The host interface: every call that a task handler can make on a machine, as [`Files`], [`Units`], [`Inventory`] and [`Host`] itself.

use std::time::Duration;

use async_trait::async_trait;
use camino::{Utf8Path, Utf8PathBuf};
use futures::stream::BoxStream;
use gpuaas_wire::task::HostFacts;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    digest::ContentId,
    error::HostError,
    file::{Changed, Durable, FileSpec},
    inventory::{Listener, Process},
    journal::{JournalFrom, JournalLine},
    survey::Tree,
    unit::{UnitFileState, UnitStatus},
};

/// Facts that a host reports about itself, in the shape in which tasks return them.
pub type Facts = HostFacts;

/// A program to run until it exits.
#[derive(Clone, Debug)]
pub struct Command {
    /// Path of the program on the host.
    pub program: Utf8PathBuf,
    /// Arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Environment variables in addition to those that the host gives every program.
    pub environment: Vec<(String, String)>,
    /// The host kills the program after this time.
    pub timeout: Duration,
}

/// The result of a program that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit status; `None` if a signal ended the program.
    pub status: Option<i32>,
    /// The last part of the program's output, at most [`CommandEnd::OUTPUT_BYTES_MAX`].
    pub output: String,
}

impl CommandEnd {
    /// Most output kept, in bytes.
    pub const OUTPUT_BYTES_MAX: usize = 16 * 1_024;
}

/// Most packet filter rules that one call returns.
pub const FIREWALL_RULES_MAX: usize = 1_000;

/// Everything that a handler can do to a host, in three parts and three calls. Implemented for sandboxes and for systemd.
///
/// Every change is idempotent: repeating it after a crash ends in the same state and returns [`Changed::No`]. No method has a default: an
/// implementation that forwards to another one cannot miss a new method.
#[async_trait]
pub trait Host: Send + Sync {
    /// The files below the host's root.
    fn files(&self) -> &dyn Files;
    /// The units of the host's init.
    fn units(&self) -> &dyn Units;
    /// What the host has and runs.
    fn inventory(&self) -> &dyn Inventory;

    /// Runs a program until it exits.
    async fn run(&self, command: &Command) -> Result<CommandEnd, HostError>;
    /// Sets an existing kernel parameter until the next boot.
    async fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError>;
    /// Loads a kernel module until the next boot.
    async fn load_module(&self, name: &str) -> Result<Changed, HostError>;
}

/// The files of a host.
///
/// No method follows a symbolic link, opens anything but a regular file, or leaves the host's root: links, pipes and devices in its path
/// are refused with [`HostError::UnsafePath`].
#[async_trait]
pub trait Files: Send + Sync {
    /// Makes a file match its description: afterwards it is complete and durable, or as it was before.
    async fn write(&self, file: &FileSpec) -> Result<Changed, HostError>;
    /// Returns the content of a file; `None` if there is no file.
    async fn read(&self, path: &Utf8Path, bytes_max: u64) -> Result<Option<Vec<u8>>, HostError>;
    /// Removes a file, a link itself, or a whole folder; a folder that contains a mount is not emptied.
    async fn remove(&self, path: &Utf8Path) -> Result<Changed, HostError>;
    /// Removes an empty folder in one step. Folders that have entries or are mount points, links and files stay.
    async fn remove_empty_folder(&self, path: &Utf8Path) -> Result<Changed, HostError>;
    /// Creates a folder with this mode, and its missing parents with mode 0755.
    async fn make_folder(&self, path: &Utf8Path, mode: u32) -> Result<Changed, HostError>;
    /// Returns true if anything has this path, a dangling link included.
    async fn exists(&self, path: &Utf8Path) -> Result<bool, HostError>;
    /// Returns the sorted names in a folder; empty if the folder does not exist.
    async fn list(&self, path: &Utf8Path) -> Result<Vec<String>, HostError>;
    /// Returns the length of a regular file in bytes; `None` if there is no file.
    async fn size(&self, path: &Utf8Path) -> Result<Option<u64>, HostError>;
    /// Opens a regular file for reading.
    async fn open(&self, path: &Utf8Path) -> Result<Box<dyn AsyncRead + Send + Unpin>, HostError>;
    /// Opens a file for appending; creates it with mode 0600 if it is missing. Written data is durable after [`Files::sync`].
    async fn append(&self, path: &Utf8Path) -> Result<Box<dyn AsyncWrite + Send + Unpin>, HostError>;
    /// Makes a file's content durable.
    async fn sync(&self, path: &Utf8Path) -> Result<(), HostError>;
    /// Appends to an existing file. A crash before the content is durable can lose any of its bytes: those at the end are missing, others are
    /// zero.
    async fn append_bytes(&self, path: &Utf8Path, content: Vec<u8>, durable: Durable) -> Result<(), HostError>;
    /// Overwrites existing bytes of a file, from offset `at` on. A crash before they are durable leaves each of these bytes either old or new, and
    /// all others unchanged.
    async fn overwrite(&self, path: &Utf8Path, at: u64, content: Vec<u8>, durable: Durable) -> Result<(), HostError>;
    /// Renames a file atomically.
    async fn rename(&self, from: &Utf8Path, to: &Utf8Path) -> Result<(), HostError>;
    /// Returns the content of a file after checking its digest in the returned memory; [`HostError::ContentMismatch`] if the file holds other
    /// content.
    async fn read_verified(&self, path: &Utf8Path, id: ContentId) -> Result<Vec<u8>, HostError>;
    /// Returns true if a file has exactly this content and only the agent's own user can write it.
    async fn has_content(&self, path: &Utf8Path, id: ContentId) -> Result<bool, HostError>;
    /// Copies a file (sharing its blocks if the file system can) and gives the copy the name `to` if it has exactly this content; otherwise
    /// fails with [`HostError::ContentMismatch`] and changes nothing.
    async fn copy_verified(
        &self,
        from: &Utf8Path,
        to: &Utf8Path,
        mode: u32,
        id: ContentId,
    ) -> Result<Changed, HostError>;
}

/// The units of a host's init, and their journals.
#[async_trait]
pub trait Units: Send + Sync {
    /// Makes the init read the unit files again.
    async fn daemon_reload(&self) -> Result<(), HostError>;
    /// Queues a unit's start and does not wait for it: some services never finish starting. A unit that runs or is starting does not change;
    /// of two concurrent calls both can return [`Changed::Yes`], but the unit is started once.
    async fn start(&self, unit: &str) -> Result<Changed, HostError>;
    /// Stops a unit and waits until it has stopped.
    async fn stop(&self, unit: &str) -> Result<Changed, HostError>;
    /// Enables a unit at boot. A unit file without an `[Install]` section is refused, and so is a masked unit.
    async fn enable(&self, unit: &str) -> Result<Changed, HostError>;
    /// Disables a unit at boot. A running unit keeps running; an unknown unit counts as disabled.
    async fn disable(&self, unit: &str) -> Result<Changed, HostError>;
    /// Lifts every mask of a unit, permanent and until the next boot. Enables and starts nothing; an unknown unit has no mask.
    async fn unmask(&self, unit: &str) -> Result<Changed, HostError>;
    /// Returns what the unit files say about a unit.
    async fn unit_file_state(&self, unit: &str) -> Result<UnitFileState, HostError>;
    /// Returns the paths whose changes can change what the unit files say about a unit.
    fn enablement_paths(&self, unit: &str) -> Vec<Utf8PathBuf>;
    /// Clears a unit's failed state and its start counter, so that it can be started again at once.
    async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError>;
    /// Returns a unit's status; `None` if the init does not know the unit.
    async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError>;
    /// Returns a stream of a unit's status, now and after every change, until the stream is dropped, the unit is removed or the init exits;
    /// an empty stream if there is no such unit.
    async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError>;
    /// Returns the lines of a unit's journal; with `follow`, also every line that is added later.
    async fn journal(
        &self,
        unit: &str,
        from: JournalFrom,
        follow: bool,
    ) -> Result<BoxStream<'static, JournalLine>, HostError>;
}

/// What a host has and runs; changes nothing.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// Returns the facts of the host.
    async fn facts(&self) -> Result<Facts, HostError>;
    /// Returns the address on which the node's services listen.
    fn address(&self) -> std::net::IpAddr;
    /// Returns those TCP ports of `ports` on which something listens at the node's own address.
    async fn listening(&self, ports: &[u16]) -> Result<Vec<u16>, HostError>;
    /// Returns every listening socket of the node itself, without those of its containers.
    async fn listeners(&self) -> Result<Vec<Listener>, HostError>;
    /// Returns the node's processes whose program is under one of the prefixes; all of them if there are no prefixes.
    async fn processes(&self, prefixes: &[String]) -> Result<Vec<Process>, HostError>;
    /// Returns the node's mount points under one of the prefixes.
    async fn mounts(&self, prefixes: &[String]) -> Result<Vec<String>, HostError>;
    /// Returns the sorted names of the node's own network links.
    async fn links(&self) -> Result<Vec<String>, HostError>;
    /// Returns the chains and rules of the node's own packet filter that contain one of the texts, at most [`FIREWALL_RULES_MAX`]; `None`
    /// if the node has no program that lists them.
    async fn firewall_rules(&self, substrings: &[String]) -> Result<Option<Vec<String>>, HostError>;
    /// Returns a stream that yields after changes of one of these paths, or of something in it if it is a folder: it was created, replaced,
    /// written, removed, or got other permissions. Follows no link. Refuses none and more than [`crate::WATCHED_PATHS_MAX`] paths.
    async fn changes(&self, paths: &[Utf8PathBuf]) -> Result<BoxStream<'static, ()>, HostError>;
    /// Returns the tree of the node's own files, for reading facts of the machine.
    fn tree(&self) -> Tree;
}
