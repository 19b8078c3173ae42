//! Starts and stops the processes of `gpuaas dev`. Each holds the reading end of a pipe and exits when it closes, so none outlives this
//! process.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use futures::{StreamExt, stream::FuturesUnordered};
use gpuaas_model::ExitStatus;
use rustix::{
    fs::inotify,
    process::{Pid, Signal, kill_process},
};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
};

use crate::{
    environment,
    output::{self, ProcessExited},
};

/// Longest wait for a process to exit after SIGTERM; then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Default settings of the control plane. The developer imports freshly built releases from any folder, without a digest or signature.
const DEV_RELEASE_SETTINGS: [(&str, &str); 2] =
    [("GPUAAS_RELEASE_IMPORT_DIR", "/"), ("GPUAAS_ALLOW_UNVERIFIED_RELEASES", "true")];

/// The started processes.
pub(super) struct Processes {
    program: Utf8PathBuf,
    children: Vec<Process>,
    /// Writing ends of the pipes. Nothing is written to them; they close when this process ends. Kept apart from `children`, because
    /// waiting for a child closes its stdin.
    lifelines: Vec<ChildStdin>,
}

/// A started process.
struct Process {
    what: String,
    /// A replica of the control plane. It may exit as long as another replica runs.
    is_replica: bool,
    child: Child,
}

/// Settings that replicas share with a PostgreSQL database.
pub(super) struct SharedStore {
    /// File of the key that encrypts secrets in the database.
    pub(super) sealing_key: Utf8PathBuf,
    /// Directory of the artifacts.
    pub(super) artifacts: Utf8PathBuf,
    /// File with the URL of the database, unless the environment holds it.
    pub(super) url_file: Option<Utf8PathBuf>,
}

impl Processes {
    pub(super) fn new() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot determine the path of this program")?;
        let program =
            Utf8PathBuf::from_path_buf(program).ok().context("the path of this program is not valid UTF-8")?;
        Ok(Self { program, children: Vec::new(), lifelines: Vec::new() })
    }

    /// Starts a replica whose API and node channel listen at these addresses.
    pub(super) fn start_server(
        &mut self,
        data_dir: &Utf8Path,
        (listen, channel): (SocketAddr, SocketAddr),
        ready: &Utf8Path,
        shared: Option<&SharedStore>,
    ) -> anyhow::Result<()> {
        let any_port = SocketAddr::new(listen.ip(), 0).to_string();
        let mut command = Command::new(&self.program);
        command.args(["server", "--lifeline", "--data-dir", data_dir.as_str()]);
        command.args(["--listen", &listen.to_string(), "--channel-listen", &channel.to_string()]);
        command.args(["--ready-file", ready.as_str()]);
        for (setting, value) in DEV_RELEASE_SETTINGS {
            if environment::variable(setting).is_none() {
                command.env(setting, value);
            }
        }
        if let Some(shared) = shared {
            command.args(["--replica-listen", &any_port, "--sealing-key-file", shared.sealing_key.as_str()]);
            command.args(["--artifacts-dir", shared.artifacts.as_str()]);
            command.args(shared.url_file.iter().flat_map(|file| ["--store-url-file", file.as_str()]));
        }
        self.start("the control plane".to_owned(), true, command)
    }

    /// Starts the init process of a sandbox node.
    pub(super) fn start_node(&mut self, root: &Utf8Path, name: &str, address: IpAddr) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["sandbox-init", "--lifeline", "--root", root.as_str(), "--hostname", name]);
        command.args(["--address", &address.to_string()]);
        self.start(format!("the init of {name}"), false, command)
    }

    fn start(&mut self, what: String, is_replica: bool, mut command: Command) -> anyhow::Result<()> {
        // In its own process group, Ctrl-C does not reach the child: this process stops all children in order.
        let mut child =
            command.stdin(Stdio::piped()).process_group(0).spawn().with_context(|| format!("starting {what}"))?;
        self.lifelines.extend(child.stdin.take());
        self.children.push(Process { what, is_replica, child });
        Ok(())
    }

    /// Waits for the exit of a node's init or of the last replica, and describes it.
    pub(super) async fn wait_first_exit(&mut self) -> ProcessExited {
        let mut replicas = self.children.iter().filter(|process| process.is_replica).count();
        let mut ends: FuturesUnordered<_> = self
            .children
            .iter_mut()
            .map(|process| async { (process.is_replica, await_exit(&process.what, &mut process.child).await) })
            .collect();
        while let Some((is_replica, exited)) = ends.next().await {
            if !is_replica || replicas == 1 {
                return exited;
            }
            replicas -= 1;
            output::message(format_args!("{exited}; {replicas} replicas continue"));
        }
        std::future::pending().await
    }

    /// Stops every process: first the nodes with everything in their sandboxes, then the control plane.
    pub(super) async fn stop_all(&mut self) {
        let (servers, nodes): (Vec<_>, Vec<_>) = self.children.drain(..).partition(|process| process.is_replica);
        for group in [nodes, servers] {
            let mut ends: FuturesUnordered<_> = group.into_iter().map(stop).collect();
            while ends.next().await.is_some() {}
        }
    }
}

async fn await_exit(what: &str, child: &mut Child) -> ProcessExited {
    let (how, status) = match child.wait().await {
        Ok(status) => (
            status.to_string().replace("status: ", "status "),
            status.code().filter(|code| *code != 0).and_then(ExitStatus::of),
        ),
        Err(error) => (error.to_string(), None),
    };
    ProcessExited { what: what.to_owned(), how, status: status.unwrap_or(ExitStatus::Failed) }
}

async fn stop(Process { what, mut child, .. }: Process) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
        // The process may have exited already.
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        output::message(format_args!("{what} did not exit in time; killing it"));
        let _ = child.kill().await;
    }
}

/// Returns the path of the agent, which is installed in the same directory as this program.
pub(super) fn agent_program() -> anyhow::Result<Utf8PathBuf> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let agent = program.with_file_name("gpuaas-agent");
    anyhow::ensure!(agent.is_file(), "{} is missing; install it next to gpuaas", agent.display());
    Utf8PathBuf::from_path_buf(agent).ok().context("the path of the agent is not valid UTF-8")
}

/// Watches a directory for new files with inotify.
pub(super) struct FolderWatch {
    events: tokio::sync::Mutex<pipe::Receiver>,
}

impl FolderWatch {
    pub(super) fn new(folder: &Utf8Path) -> anyhow::Result<Self> {
        let handle: OwnedFd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&handle, folder.as_std_path(), inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CREATE)?;
        // An inotify descriptor is read like a pipe.
        let events = pipe::Receiver::from_owned_fd_unchecked(handle)?;
        Ok(Self { events: tokio::sync::Mutex::new(events) })
    }

    /// Returns after the next change.
    pub(super) async fn changed(&self) -> std::io::Result<()> {
        let mut buffer = [0_u8; 4_096];
        self.events.lock().await.read(&mut buffer).await.map(|_| ())
    }
}
