//! A sandbox node for tests: a folder, a separate loopback address, a socket for `READY=1`, and `rke2` as a plain process.

#![allow(dead_code, reason = "each test file uses its own part of the node")]

pub(crate) mod kubectl;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) const VERSION: &str = "v1.36.3+rke2r1";
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/package");
const PROGRAMS: [&str; 5] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
const PORTS: [u16; 8] = [9345, 6443, 2379, 2380, 2381, 10250, 10257, 10259];

pub(crate) struct Node {
    folder: tempfile::TempDir,
    pub(crate) name: String,
    pub(crate) address: String,
    notify: UnixDatagram,
}

/// A running `rke2` with access to its log lines.
pub(crate) struct Rke2 {
    child: Child,
    lines: Receiver<String>,
    pub(crate) seen: Vec<String>,
}

impl Node {
    /// Creates a node with the package installed and an images archive that lists `components`.
    pub(crate) fn new(name: &str, components: &serde_json::Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let notify = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let node = Self { name: name.to_owned(), address: free_address(), notify, folder };
        for dir in
            ["usr/local/bin", "usr/local/lib/systemd/system", "etc/rancher/rke2", "var/lib/rancher/rke2/agent/images"]
        {
            fs::create_dir_all(node.path(dir)).unwrap();
        }
        // Links, not copies: executing a file that was just written fails (ETXTBSY) while a concurrent test forks.
        symlink(env!("CARGO_BIN_EXE_rke2"), node.path("usr/local/bin/rke2")).unwrap();
        for script in ["rke2-killall.sh", "rke2-uninstall.sh"] {
            symlink(format!("{PACKAGE}/bin/{script}"), node.path(&format!("usr/local/bin/{script}"))).unwrap();
        }
        fs::write(node.path("var/lib/rancher/rke2/agent/images/rke2-images.linux-amd64.tar.zst"), archive(components))
            .unwrap();
        node
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join("root").join(relative)
    }

    pub(crate) fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
    }

    pub(crate) fn configure(&self, text: &str) {
        let config = format!("node-name: {}\nnode-ip: {}\n{text}\n", self.name, self.address);
        fs::write(self.path("etc/rancher/rke2/config.yaml"), config).unwrap();
    }

    pub(crate) fn fault(&self, text: &str) {
        fs::write(self.path("etc/rancher/rke2/stand-in-faults"), text).unwrap();
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(&format!("usr/local/bin/{program}")));
        command
            .env("GPUAAS_SANDBOX_ROOT", self.path(""))
            .env("GPUAAS_SANDBOX_ADDRESS", &self.address)
            .env("GPUAAS_SANDBOX_HOSTNAME", &self.name)
            .env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command
    }

    pub(crate) fn start(&self, role: &str) -> Rke2 {
        self.start_with(&[role], &[])
    }

    /// Starts `rke2` with these arguments and additional environment variables.
    pub(crate) fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Rke2 {
        let mut child = self
            .command("rke2")
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Rke2 { child, lines, seen: Vec::new() }
    }

    /// Whether `READY=1` is received within `limit`.
    pub(crate) fn is_ready_within(&self, limit: Duration) -> bool {
        self.notify.set_read_timeout(Some(limit)).unwrap();
        let mut buffer = [0; 64];
        self.notify.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == b"READY=1")
    }

    pub(crate) fn listens(&self, port: u16) -> bool {
        TcpStream::connect((self.address.as_str(), port)).is_ok()
    }

    /// Names and process IDs of this node's running components, from the process table.
    pub(crate) fn components(&self) -> Vec<(String, i32)> {
        let place = self.path("var/lib/rancher/rke2/data");
        let mut found: Vec<(String, i32)> = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter_map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let program = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
                let program = Path::new(&program);
                program.starts_with(&place).then(|| (program.file_name().unwrap().to_string_lossy().into_owned(), pid))
            })
            .collect();
        found.sort();
        found
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // No process of this node may remain, not even after a failed assertion.
        for (_, pid) in self.components() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

impl Rke2 {
    /// Returns the next log line that contains `text`. Panics with the log if there is none within `limit`.
    pub(crate) fn line(&mut self, text: &str, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("no line with {text:?} in {limit:?}; log:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the process as the unit does: SIGTERM to the main process only.
    pub(crate) fn stop(self) -> ExitStatus {
        kill_process(Pid::from_raw(self.pid()).unwrap(), Signal::TERM).unwrap();
        self.wait()
    }
}

impl Drop for Rke2 {
    fn drop(&mut self) {
        // Also runs after a failed assertion. Does nothing if the process was waited for.
        self.end();
    }
}

/// Returns the components' folder (`GPUAAS_COMPONENTS`, otherwise the newest in the cache) and their list.
pub(crate) fn components() -> (PathBuf, serde_json::Value) {
    let given = std::env::var_os("GPUAAS_COMPONENTS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let built = cache.and_then(|dir| {
        let entries = fs::read_dir(dir.join("gpuaas/components")).ok()?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(VERSION)))
            .filter(|path| path.join("manifest.json").is_file())
            .max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())
    });
    let dir = given.or(built).filter(|dir| dir.is_dir());
    let dir = dir.expect("built Kubernetes components: `cargo xtask components` builds them");
    let files: Vec<serde_json::Value> = PROGRAMS
        .iter()
        .map(|name| {
            let path = dir.join(name);
            let content = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let sha256 = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content));
            serde_json::json!({ "name": name, "sha256": sha256, "size": content.len(), "path": path })
        })
        .collect();
    let list = serde_json::json!({ "version": VERSION, "components": files });
    (dir, list)
}

/// An empty component list, for nodes that start no component.
pub(crate) fn no_components() -> serde_json::Value {
    serde_json::json!({ "version": VERSION, "components": [] })
}

fn archive(list: &serde_json::Value) -> Vec<u8> {
    let content = list.to_string();
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "components.json", content.as_bytes()).unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

/// Returns a random loopback address on which all of a node's ports are free. Random, so that concurrent tests use different addresses.
/// Probes by connecting, not by binding: a process that another test forks would hold the listener until its `execve`.
fn free_address() -> String {
    loop {
        let mut random = [0; 3];
        getrandom::fill(&mut random).unwrap();
        let address = Ipv4Addr::new(127, 64 + random[0] % 64, random[1], 1 + random[2] % 250);
        if PORTS.iter().all(|port| TcpStream::connect((address, *port)).is_err()) {
            return address.to_string();
        }
    }
}

/// Forwards connections from a new loopback port to `target`, as a load balancer behind a registration address does. Returns the port.
pub(crate) fn forward_to(target: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // Without a server, the connection is closed, as by a load balancer.
            let Ok(server) = TcpStream::connect(&target) else { continue };
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    port
}

pub(crate) fn succeeded(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Returns when `done` returns true; panics with `what` after `limit`. For states that only a query shows.
pub(crate) fn until(limit: Duration, what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
