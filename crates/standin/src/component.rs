//! Runs the genuine components as processes that outlive `rke2`, as static pods outlive RKE2.
//!
//! The process table is the only record of running components. A component is found by its program path inside this node's
//! data directory, so a crash right after a start loses no process, and another node's process is never mistaken for this
//! node's. A restarted `rke2` adopts components that run with the wanted arguments and replaces those that run with others.
//! While `rke2` runs, it restarts components that exit.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use camino::{Utf8Path, Utf8PathBuf};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use crate::{log, paths};

/// Delay before a component that exited is restarted: a kubelet's first back-off.
const RESTART_AFTER: Duration = Duration::from_secs(10);
/// Time that a component being replaced has to exit before it is killed. An apiserver needs several seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// A larger log is renamed to `<log>.1` at the next start of its component.
const LOG_BYTES_MAX: u64 = 10 << 20;

/// Length of the log's end that is searched for the reason why a component exited.
const LOG_TAIL_BYTES_MAX: u64 = 1024;

/// Variables that a component inherits from `rke2`, in addition to those that begin with [`SANDBOX_PREFIX`].
const INHERITED: [&str; 3] = ["PATH", "HOME", "TMPDIR"];
const SANDBOX_PREFIX: &str = "GPUAAS_SANDBOX_";

/// The program, arguments, environment and log of one component.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) name: &'static str,
    /// Folder of the program; a descendant of `data_root`.
    pub(crate) bin: Utf8PathBuf,
    /// The folder that holds every installed release: `data` in RKE2's data directory.
    pub(crate) data_root: Utf8PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Additional variables: limits of the Go runtime.
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) log: Utf8PathBuf,
}

enum Process {
    Started(Child),
    Adopted(Handle),
}

/// A process that may not be a child of this process.
pub(crate) struct Handle {
    pidfd: Arc<OwnedFd>,
    /// Completes when the process has exited.
    ended: oneshot::Receiver<()>,
}

impl Handle {
    /// Opens a handle to the process; none if it has exited.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty()).ok()?);
        let (sender, ended) = oneshot::channel();
        let watched = pidfd.clone();
        // A detached thread: the exit of a process that is not a child can only be observed by polling its pidfd.
        std::thread::spawn(move || {
            while let Err(rustix::io::Errno::INTR) = poll(&mut [PollFd::new(&watched.as_fd(), PollFlags::IN)], None) {}
            // Fails only if the handle was dropped.
            let _ = sender.send(());
        });
        Some(Self { pidfd, ended })
    }

    /// Returns when the process has exited.
    pub(crate) async fn ended(self) {
        let _ = self.ended.await;
    }

    /// Sends SIGTERM, then SIGKILL after `timeout`, and returns when the process has exited.
    pub(crate) async fn end(mut self, timeout: Duration) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        if tokio::time::timeout(timeout, &mut self.ended).await.is_err() {
            self.signal(Signal::KILL)?;
            let _ = self.ended.await;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Component {
    fn program(&self) -> Utf8PathBuf {
        self.bin.join(self.name)
    }

    fn command_line(&self) -> Vec<String> {
        std::iter::once(self.program().into_string()).chain(self.arguments.iter().cloned()).collect()
    }

    /// Adopts or starts the component, then restarts it whenever it exits, in a task that lasts until `rke2` ends.
    pub(crate) async fn run(self) -> anyhow::Result<tokio::task::JoinHandle<()>> {
        let process = self.adopt_or_start().await?;
        Ok(tokio::spawn(self.keep_running(process)))
    }

    async fn adopt_or_start(&self) -> anyhow::Result<Process> {
        for (pid, command_line) in running(&self.data_root, self.name)? {
            // It exited after the process table was read.
            let Some(handle) = Handle::of(pid) else { continue };
            if command_line == self.command_line() {
                log::info!("{} is running already with pid {}", self.name, pid.as_raw_nonzero());
                return Ok(Process::Adopted(handle));
            }
            log::info!("Replacing {} with pid {}: its arguments changed", self.name, pid.as_raw_nonzero());
            handle.end(STOP_TIMEOUT).await?;
        }
        self.start()
    }

    fn start(&self) -> anyhow::Result<Process> {
        let log = open_log(&self.log)?;
        let mut command = Command::new(self.program());
        command.args(&self.arguments).env_clear();
        let inherited =
            std::env::vars().filter(|(name, _)| INHERITED.contains(&name.as_str()) || name.starts_with(SANDBOX_PREFIX));
        command.envs(inherited).envs(self.environment.iter().map(|(name, value)| (name, value)));
        // A separate process group, so that a terminal's Ctrl-C reaches only `rke2`.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        Ok(Process::Started(command.spawn().with_context(|| format!("cannot run {}", self.program()))?))
    }

    /// The last line of the component's log, which usually names the reason for the exit; empty if it cannot be read.
    fn last_log_line(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = fs::File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES_MAX)))?;
            let mut tail = Vec::new();
            file.take(LOG_TAIL_BYTES_MAX).read_to_end(&mut tail)?;
            let tail = String::from_utf8_lossy(&tail);
            Ok(tail.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned())
        };
        read().unwrap_or_default()
    }

    async fn keep_running(self, mut process: Process) {
        loop {
            match process {
                Process::Started(mut child) => match child.wait().await {
                    Ok(status) => log::error!("{} exited: {status}: {}", self.name, self.last_log_line()),
                    Err(error) => log::error!("Failed to wait for {}: {error}", self.name),
                },
                Process::Adopted(handle) => {
                    handle.ended().await;
                    log::error!("{} exited: {}", self.name, self.last_log_line());
                }
            }
            process = loop {
                tokio::time::sleep(RESTART_AFTER).await;
                match self.adopt_or_start().await {
                    Ok(process) => break process,
                    Err(error) => log::error!("Failed to start {}: {error:#}", self.name),
                }
            };
        }
    }
}

/// Opens a program's log for appending, after renaming it to `<path>.1` if it is larger than [`LOG_BYTES_MAX`].
pub(crate) fn open_log(path: &Utf8Path) -> anyhow::Result<fs::File> {
    if let Some(dir) = path.parent() {
        paths::make_dir(dir, 0o755)?;
    }
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
        fs::rename(path, format!("{path}.1"))?;
    }
    Ok(fs::OpenOptions::new().create(true).append(true).mode(0o640).open(path)?)
}

/// Finds the processes whose program is `<data_root>/<any release>/bin/<name>`, with their command lines.
pub(crate) fn running(data_root: &Utf8Path, name: &str) -> anyhow::Result<Vec<(Pid, Vec<String>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let Ok(raw) = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())) else { continue };
        let command_line: Vec<String> = raw
            .strip_suffix(b"\0")
            .unwrap_or(&raw)
            .split(|byte| *byte == 0)
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect();
        if command_line.first().is_some_and(|program| belongs(program, data_root, name)) {
            found.push((pid, command_line));
        }
    }
    Ok(found)
}

fn belongs(program: &str, data_root: &Utf8Path, name: &str) -> bool {
    let inside = Utf8Path::new(program).strip_prefix(data_root).ok();
    let parts: Vec<&str> = inside.map(|path| path.iter().collect()).unwrap_or_default();
    matches!(parts.as_slice(), [_, "bin", program] if *program == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_this_nodes_data_directory_are_its_own() {
        let root = Utf8Path::new("/s/n1/var/lib/rancher/rke2/data");
        assert!(belongs("/s/n1/var/lib/rancher/rke2/data/v1-ab/bin/etcd", root, "etcd"));
        assert!(!belongs("/s/n10/var/lib/rancher/rke2/data/v1-ab/bin/etcd", root, "etcd"));
        assert!(!belongs("/s/n1/var/lib/rancher/rke2/data/v1-ab/bin/etcdctl", root, "etcd"));
        assert!(!belongs("/usr/bin/etcd", root, "etcd"));
    }
}
