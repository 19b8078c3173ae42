//! The init process: creates the root's folders, starts enabled units, serves its socket, and leaves no process behind.

use std::{fs, net::IpAddr, os::unix::fs::PermissionsExt, rc::Rc};

use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_host::sandbox::SandboxEnvironment;
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, unix::pipe},
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};

use crate::{process, serve, units::Units};

/// Folders that every root has.
const FOLDERS: &[&str] = &[
    "etc/systemd/system",
    "usr/local/bin",
    "usr/local/lib/systemd/system",
    "var/lib",
    "var/log",
    "run",
    "root",
    "tmp",
];

/// Options of an init.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// The folder that is `/` in the sandbox; created if it is missing.
    pub root: Utf8PathBuf,
    /// The node's host name.
    pub hostname: String,
    /// The node's own IP address.
    pub address: IpAddr,
    /// The command that the sandbox's `systemctl` runs, without the caller's arguments.
    pub systemctl: Vec<String>,
    /// True to exit when standard input closes, which it does when the process that started this init has died in any way.
    pub lifeline: bool,
}

/// The reason why an init does not run.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}: {source}")]
pub struct InitError {
    what: &'static str,
    path: Utf8PathBuf,
    source: std::io::Error,
}

impl InitError {
    fn of(what: &'static str, path: impl Into<Utf8PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self { what, path, source }
    }
}

/// Runs a sandbox until SIGTERM, SIGINT or the end of its lifeline; then ends every process in it.
pub async fn run(options: InitOptions) -> Result<(), InitError> {
    LocalSet::new().run_until(run_local(options)).await
}

async fn run_local(options: InitOptions) -> Result<(), InitError> {
    let environment = prepare(&options)?;
    // Makes orphans of units children of this process, so that it can reap them.
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::warn!(%error, "cannot become a child subreaper, so orphans are not reaped");
    }
    let listener = listen(&environment.socket)?;
    let units = Rc::new(Units::new(environment));
    units.reload();
    for name in units.enabled().into_iter().filter(|name| !units.is_masked(name)) {
        if let Some(unit) = units.unit(&name) {
            drop(unit.start());
        }
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(InitError::of("catch signals for", &options.root))?;
    let children = signal(SignalKind::child()).map_err(InitError::of("catch signals for", &options.root))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(InitError::of("catch signals for", &options.root))?;
    tokio::select! {
        () = serve::run(units.clone(), listener) => {}
        () = process::reap_orphans(children) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = lifeline(options.lifeline) => {}
    }
    // The sender of the signal does not wait for as long as a unit may take to stop: processes that are left after the grace period are
    // killed, because none may remain.
    let stopped = tokio::time::timeout(process::SHUTDOWN_GRACE, units.stop_all()).await;
    // By the resolved path, with which the processes are marked.
    process::end_all(&units.environment.root, stopped.is_ok()).await;
    // A remaining socket file would look like a running init.
    let _ = fs::remove_file(&units.environment.socket);
    Ok(())
}

async fn lifeline(enabled: bool) {
    if !enabled {
        return std::future::pending().await;
    }
    let input = rustix::io::dup(std::io::stdin());
    let Ok(Ok(mut input)) = input.map(pipe::Receiver::from_owned_fd) else {
        tracing::warn!("standard input is not a pipe, so the lifeline is ignored");
        return std::future::pending().await;
    };
    let mut nothing = [0_u8; 64];
    while matches!(input.read(&mut nothing).await, Ok(1..)) {}
}

fn prepare(options: &InitOptions) -> Result<SandboxEnvironment, InitError> {
    let root = &options.root;
    for folder in FOLDERS.iter().chain(&[".sandbox/bin", ".sandbox/journal"]) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(InitError::of("create", &folder))?;
    }
    let root = root.canonicalize_utf8().map_err(InitError::of("resolve", root))?;
    write_if_absent(&root.join("etc/machine-id"), &format!("{}\n", random_hex(&root)?))?;
    fs::write(root.join("etc/hostname"), format!("{}\n", options.hostname))
        .map_err(InitError::of("write", root.join("etc/hostname")))?;
    let shim = root.join(".sandbox/bin/systemctl");
    let words: Vec<String> =
        options.systemctl.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    fs::write(&shim, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))).map_err(InitError::of("write", &shim))?;
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).map_err(InitError::of("write", &shim))?;
    Ok(SandboxEnvironment {
        socket: root.join("run/sandbox-init.sock"),
        root,
        address: options.address,
        hostname: options.hostname.clone(),
    })
}

fn write_if_absent(path: &Utf8Path, text: &str) -> Result<(), InitError> {
    if path.exists() { Ok(()) } else { fs::write(path, text).map_err(InitError::of("write", path)) }
}

fn random_hex(root: &Utf8Path) -> Result<String, InitError> {
    let uuid =
        fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(InitError::of("make a machine id for", root))?;
    Ok(uuid.trim().replace('-', ""))
}

/// Binds the socket, through a descriptor of its folder if its path is longer than the kernel accepts.
fn listen(socket: &Utf8Path) -> Result<UnixListener, InitError> {
    const SUN_PATH_BYTES_MAX: usize = 107;
    let fail = || InitError::of("listen on", socket);
    let _ = fs::remove_file(socket);
    if socket.as_str().len() <= SUN_PATH_BYTES_MAX {
        return UnixListener::bind(socket.as_std_path()).map_err(fail());
    }
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(fail()(std::io::ErrorKind::InvalidInput.into()));
    };
    let folder = fs::File::open(folder).map_err(fail())?;
    let short = format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&folder));
    UnixListener::bind(short).map_err(fail())
}
