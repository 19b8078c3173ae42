//! Processes of a sandbox: starting one for a unit, and ending all.

use std::{
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram as StdDatagram},
    },
    process::Stdio,
    time::Duration,
};

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::sandbox::{ROOT, SandboxEnvironment, UNIT};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open},
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

/// How long processes have to end after SIGTERM when the sandbox is shut down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Longest wait for one process: it must end by itself, so that the thread that waits does.
const WAIT_SECONDS_MAX: i64 = 60;

/// Starts a unit's command with its output going to the journal. The program is looked for under the root first.
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
        .envs(file_variables(environment, unit))
        .envs(unit.environment.iter().cloned())
        .env(UNIT, name)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(socket) = notify {
        command.env("NOTIFY_SOCKET", socket);
    }
    let mut child = command.spawn()?;
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

fn file_variables(environment: &SandboxEnvironment, unit: &UnitFile) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for (_, path) in &unit.environment_files {
        let inside = environment.root.join(path.as_str().trim_start_matches('/'));
        let text = std::fs::read_to_string(inside).unwrap_or_default();
        variables.extend(text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
        }));
    }
    // A unit's `HOME=/root` means the sandbox's own.
    for (name, value) in &mut variables {
        if name == "HOME" {
            *value = environment.root.join(value.trim_start_matches('/')).into_string();
        }
    }
    variables
}

fn copy_lines(from: impl AsyncRead + Unpin + 'static, journal: Journal) {
    tokio::task::spawn_local(async move {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match from.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => journal.write(String::from_utf8_lossy(&line).trim_end()),
            }
        }
    });
}

/// A socket for READY=1 and its name for NOTIFY_SOCKET. Abstract: no path is too long for it, and it ends with its owner.
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

/// Every process that carries this root in its environment, this one left out.
pub(crate) fn of_root(root: &Utf8Path) -> Vec<Pid> {
    let mark = format!("{ROOT}={root}");
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let marked = environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes());
            (marked && pid.unsigned_abs() != own).then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

/// Ends every process of the sandbox: politely first, then not. Returns when none is left.
pub(crate) async fn end_all(root: &Utf8Path) {
    for signal in [Signal::TERM, Signal::KILL] {
        let pids = of_root(root);
        for &pid in &pids {
            // One that ended meanwhile is what we want.
            let _ = rustix::process::kill_process(pid, signal);
        }
        let ends = futures::future::join_all(pids.into_iter().map(wait_for_end));
        let grace = if signal == Signal::TERM { SHUTDOWN_GRACE } else { Duration::from_secs(60) };
        if tokio::time::timeout(grace, ends).await.is_ok() && of_root(root).is_empty() {
            return;
        }
    }
}

/// Waits for a process that need not be our child: its handle becomes readable when it has ended.
async fn wait_for_end(pid: Pid) {
    let Ok(handle): Result<OwnedFd, _> = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let waiting = tokio::task::spawn_blocking(move || {
        let mut watched = [PollFd::new(&handle, PollFlags::IN)];
        // Interrupted by a signal or not: who called looks again whether any process is left.
        let _ = poll(&mut watched, Some(&Timespec { tv_sec: WAIT_SECONDS_MAX, tv_nsec: 0 }));
    });
    let _ = waiting.await;
}
