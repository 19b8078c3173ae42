//! Processes of a sandbox: starts them for units, and ends all of them.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram as StdDatagram},
    },
    process::Stdio,
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_crash_points::{Point, reach};
use gpuaas_host::{
    JournalLine,
    sandbox::{self, ROOT, SandboxEnvironment, UNIT},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    net::UnixDatagram,
    process::{Child, Command},
};

use crate::{
    journal::Journal,
    unit_file::{Exec, UnitFile},
};

/// Time for processes to end after SIGTERM when the sandbox is shut down.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Longest time in which killed processes are gone, unless the kernel holds one.
const KILL_MAX: Duration = Duration::from_secs(60);
/// A longer line is split; this is journald's default.
const LINE_BYTES_MAX: usize = 48 * 1_024;
/// Longest wait for one process: the blocking thread of the wait must end even if the process does not.
const WAIT_SECONDS_MAX: i64 = 60;

/// Starts a unit's command and sends its output to the journal. A program under the root takes precedence over the machine's.
pub(crate) fn spawn(
    environment: &SandboxEnvironment,
    name: &str,
    unit: &UnitFile,
    exec: &Exec,
    notify: Option<&str>,
    journal: &Journal,
) -> std::io::Result<Child> {
    let program = exec.words.first().map(String::as_str).unwrap_or_default();
    let mut command = Command::new(resolve(environment, program).as_std_path());
    command
        .args(&exec.words[1..])
        .current_dir(&environment.root)
        .env_clear()
        .envs(environment.variables())
        .envs(unit.environment.iter().cloned())
        .envs(file_variables(environment, unit)?)
        .env(UNIT, name)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(socket) = notify {
        command.env("NOTIFY_SOCKET", socket);
    }
    reach(Point::UnitStarting);
    let mut child = gpuaas_host::spawn(&mut command)?;
    reach(Point::UnitStarted);
    AWAITED.with_borrow_mut(|awaited| awaited.extend(id(&child).map(Pid::as_raw_pid)));
    if let Some(stdout) = child.stdout.take() {
        copy_lines(stdout, journal.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        copy_lines(stderr, journal.clone());
    }
    Ok(child)
}

fn resolve(environment: &SandboxEnvironment, program: &str) -> Utf8PathBuf {
    let inside = environment.root.join(program.trim_start_matches('/'));
    if inside.exists() { inside } else { Utf8PathBuf::from(program) }
}

/// Returns the variables of a unit's environment files; later ones take precedence. A missing file is an error unless it is optional.
pub(crate) fn file_variables(
    environment: &SandboxEnvironment,
    unit: &UnitFile,
) -> std::io::Result<Vec<(String, String)>> {
    let mut variables = Vec::new();
    for (optional, path) in &unit.environment_files {
        let inside = environment.root.join(path.as_str().trim_start_matches('/'));
        let text = match std::fs::read_to_string(inside) {
            Ok(text) => text,
            Err(_) if *optional => continue,
            Err(error) => return Err(std::io::Error::new(error.kind(), format!("{path}: {error}"))),
        };
        variables.extend(text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])).filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.trim().to_owned(), unquoted(value.trim()).to_owned()))
        }));
    }
    // A unit's `HOME=/root` means `/root` in the sandbox.
    for (name, value) in &mut variables {
        if name == "HOME" {
            *value = environment.root.join(value.trim_start_matches('/')).into_string();
        }
    }
    Ok(variables)
}

fn unquoted(value: &str) -> &str {
    let inside = |quote| value.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

/// Copies a program's output in journald's way: a line ends with a newline or a NUL, or at its greatest length.
fn copy_lines(from: impl AsyncRead + Unpin + 'static, journal: Journal) {
    tokio::task::spawn_local(async move {
        let mut from = BufReader::new(from);
        // The beginning of the current line, and its whole length: a program must not fill the init's memory with one line.
        let (mut line, mut length) = (Vec::new(), 0_usize);
        loop {
            let (used, ended) = match from.fill_buf().await {
                Ok([]) | Err(_) => break,
                Ok(bytes) => {
                    let bytes = &bytes[..bytes.len().min(LINE_BYTES_MAX - length)];
                    let end = bytes.iter().position(|&byte| matches!(byte, b'\n' | b'\0'));
                    let part = &bytes[..end.unwrap_or(bytes.len())];
                    length += part.len();
                    line.extend(part.iter().take(JournalLine::TEXT_BYTES_MAX + 1 - line.len()));
                    (part.len() + usize::from(end.is_some()), end.is_some() || length == LINE_BYTES_MAX)
                }
            };
            from.consume(used);
            if ended {
                journal.write_output(&line, length);
                (line, length) = (Vec::new(), 0);
            }
        }
        journal.write_output(&line, length);
    });
}

/// Returns a socket for READY=1, and its name for NOTIFY_SOCKET. The name is abstract: it has no length limit by path, and disappears with
/// its owner.
pub(crate) fn notify_socket(environment: &SandboxEnvironment, unit: &str) -> std::io::Result<(UnixDatagram, String)> {
    // The root's path is unique on the machine; its hash keeps the name short.
    let hash = environment
        .root
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let name = format!("gpuaas-sandbox/{hash:016x}/{unit}/{}", std::process::id());
    let socket = StdDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    socket.set_nonblocking(true)?;
    Ok((UnixDatagram::from_std(socket)?, format!("@{name}")))
}

/// Returns every process that has this root in its environment, except this one.
pub(crate) fn of_root(root: &Utf8Path) -> Vec<Pid> {
    marked(&[format!("{ROOT}={root}")])
}

/// Returns every process that has this root and unit in its environment, except this one.
pub(crate) fn of_unit(root: &Utf8Path, unit: &str) -> Vec<Pid> {
    marked(&[format!("{ROOT}={root}"), format!("{UNIT}={unit}")])
}

fn marked(marks: &[String]) -> Vec<Pid> {
    let own = std::process::id();
    // Sandboxes need /proc; processes that cannot be listed cannot be ended.
    let pids = sandbox::processes_marked(marks).unwrap_or_default();
    pids.into_iter().filter(|pid| pid.unsigned_abs() != own).filter_map(Pid::from_raw).collect()
}

thread_local! {
    /// Child processes that a task waits for; adopted orphans are not among them.
    static AWAITED: RefCell<BTreeSet<i32>> = const { RefCell::new(BTreeSet::new()) };
}

/// Reaps orphans whenever a child ends; nothing else waits for them. Returns only if signals are no longer delivered.
pub(crate) async fn reap_orphans(mut children: tokio::signal::unix::Signal) {
    while children.recv().await.is_some() {
        let present = own_children();
        AWAITED.with_borrow_mut(|awaited| awaited.retain(|pid| present.contains(pid)));
        for pid in present.into_iter().filter(|pid| AWAITED.with_borrow(|awaited| !awaited.contains(pid))) {
            // A running child is not affected.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = Pid::from_raw(pid).map(|pid| waitid(WaitId::Pid(pid), options));
        }
    }
}

fn own_children() -> BTreeSet<i32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Returns a child's process id; `None` after it was reaped.
pub(crate) fn id(child: &Child) -> Option<Pid> {
    child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
}

/// Ends every process of the sandbox: with SIGTERM first if `graceful`, then with SIGKILL, also those that were started meanwhile. Returns when
/// none is left, or [`KILL_MAX`] after the first SIGKILL.
pub(crate) async fn end_all(root: &Utf8Path, graceful: bool) {
    if graceful {
        // What is left after the grace period is killed.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, end_present(root, Signal::TERM)).await;
    }
    let killed = async {
        // A process can start another one between the look and its own end.
        while !of_root(root).is_empty() {
            end_present(root, Signal::KILL).await;
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(KILL_MAX, killed).await.is_err() {
        tracing::error!(left = ?of_root(root), "these processes do not end");
    }
}

/// Sends a signal to every process of the sandbox, and waits for their ends.
async fn end_present(root: &Utf8Path, signal: Signal) {
    let pids = of_root(root);
    for &pid in &pids {
        // A process that has ended since needs no signal.
        let _ = rustix::process::kill_process(pid, signal);
    }
    futures::future::join_all(pids.into_iter().map(wait_for_end)).await;
}

/// Waits for a process, which need not be a child, for at most [`WAIT_SECONDS_MAX`]: its pidfd becomes readable when it ends.
pub(crate) async fn wait_for_end(pid: Pid) {
    let Ok(handle): Result<OwnedFd, _> = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let waiting = tokio::task::spawn_blocking(move || {
        let mut watched = [PollFd::new(&handle, PollFlags::IN)];
        // It does not matter if a signal interrupts the poll: `end_all` checks again for remaining processes.
        let _ = poll(&mut watched, Some(&Timespec { tv_sec: WAIT_SECONDS_MAX, tv_nsec: 0 }));
    });
    let _ = waiting.await;
}
