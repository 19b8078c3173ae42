//! What a sandbox knows of its machine and its own processes.

use std::{fs, process::Stdio};

use camino::Utf8Path;
use gpuaas_wire::task::DiskFacts;
use tokio::io::AsyncReadExt;

use super::{environment::SandboxEnvironment, program::spawn};
use crate::{
    error::HostError,
    host::{Command, CommandEnd, Facts, Process},
};

/// Where an app would put its data.
const DATA_PATH: &str = "/var/lib";

pub(super) fn facts(sandbox: &SandboxEnvironment) -> Result<Facts, HostError> {
    let system = rustix::system::uname();
    let disk = rustix::fs::statvfs(sandbox.root.as_std_path())
        .map_err(|error| HostError::file("look at", Utf8Path::new(DATA_PATH))(error.into()))?;
    Ok(Facts {
        hostname: sandbox.hostname.clone(),
        machine_id: machine_id(sandbox)?,
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        os: os_name(),
        kernel: system.release().to_string_lossy().into_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory_bytes(),
        addresses: vec![sandbox.address.to_string()],
        disks: vec![DiskFacts {
            path: DATA_PATH.to_owned(),
            size_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
            free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        }],
        sandbox: true,
    })
}

/// A sandbox is a machine of its own: its id lies in its own `/etc/machine-id`, which its init makes.
fn machine_id(sandbox: &SandboxEnvironment) -> Result<String, HostError> {
    let path = Utf8Path::new("/etc/machine-id");
    let id = fs::read_to_string(sandbox.resolve(path)?).map_err(HostError::file("read", path))?;
    Ok(id.trim().to_owned())
}

fn os_name() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

fn memory_bytes() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        info.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: u64| kib * 1_024)
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Ports of `ports` with a listener at the node's own address or at every address: read from the kernel's tables, which needs no
/// connection attempt.
pub(super) fn listening(sandbox: &SandboxEnvironment, ports: &[u16]) -> Result<Vec<u16>, HostError> {
    let std::net::IpAddr::V4(address) = sandbox.address else { return Ok(Vec::new()) };
    // The kernel prints addresses in the machine's byte order.
    let own = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    let (every, every_v6) = ("0".repeat(8), "0".repeat(32));
    let mut found = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = match fs::read_to_string(path) {
            Ok(table) => table,
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(HostError::file("read", Utf8Path::new(path))(error)),
        };
        let listeners = table.lines().skip(1).filter_map(listener);
        found.extend(
            listeners
                .filter(|(at, port)| (*at == own || *at == every || *at == every_v6) && ports.contains(port))
                .map(|(_, port)| port),
        );
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Address and port of a line of the kernel's table, if something listens there.
fn listener(line: &str) -> Option<(&str, u16)> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let (at, port) = local.split_once(':')?;
    (state == LISTEN).then_some((at, u16::from_str_radix(port, 16).ok()?))
}

/// Processes that carry this sandbox's root in their environment, whoever started them.
pub(super) fn processes(sandbox: &SandboxEnvironment, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
    let mut found = Vec::new();
    for pid in processes_marked(&[format!("{}={}", super::ROOT, sandbox.root)])? {
        let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else { continue };
        let program = program.to_string_lossy();
        let program = program.strip_prefix(sandbox.root.as_str()).unwrap_or(&program).to_owned();
        if prefixes.is_empty() || under(prefixes, &program) {
            found.push(Process { pid, program });
        }
    }
    Ok(found)
}

/// Processes of the machine that carry every one of these variables (`NAME=value`) in their environment, by id. Those that ended and
/// were not yet waited for are none.
pub fn processes_marked(marks: &[String]) -> Result<Vec<i32>, HostError> {
    let proc = Utf8Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(HostError::file("list", proc))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<i32> = pids.filter(|&pid| is_marked(pid, marks)).collect();
    found.sort_unstable();
    Ok(found)
}

fn is_marked(pid: i32, marks: &[String]) -> bool {
    /// A process that becomes another program has no environment for an instant; it runs a program nevertheless.
    const LOOKS_MAX: u32 = 100;
    for _ in 0..LOOKS_MAX {
        // A process that ends meanwhile, or is another user's, is not ours to list.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        if !environment.is_empty() {
            let has = |mark: &String| environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes());
            return marks.iter().all(has);
        }
        if fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return false;
        }
        std::thread::yield_now();
    }
    false
}

pub(super) fn mounts(sandbox: &SandboxEnvironment, prefixes: &[String]) -> Result<Vec<String>, HostError> {
    let path = Utf8Path::new("/proc/self/mounts");
    let table = fs::read_to_string(path).map_err(HostError::file("read", path))?;
    let inside = |mount: &str| {
        let inside = mount.strip_prefix(sandbox.root.as_str())?;
        under(prefixes, inside).then(|| inside.to_owned())
    };
    Ok(table.lines().filter_map(|line| inside(line.split_whitespace().nth(1)?)).collect())
}

/// Whether a path is one of these or lies under one.
fn under(prefixes: &[String], path: &str) -> bool {
    prefixes.iter().any(|prefix| Utf8Path::new(path).starts_with(prefix))
}

pub(super) async fn run(sandbox: &SandboxEnvironment, command: &Command) -> Result<CommandEnd, HostError> {
    let fail = |message: String| HostError::Program { program: command.program.clone(), message };
    let real = sandbox.resolve(&command.program)?;
    let mut program = tokio::process::Command::new(real.as_std_path());
    program
        .args(&command.arguments)
        .env_clear()
        .envs(sandbox.variables())
        // What a unit's process runs belongs to the unit, and ends with it.
        .envs(std::env::var_os(super::UNIT).map(|unit| (super::UNIT, unit)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = spawn(&mut program).map_err(|error| fail(error.to_string()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async { tokio::join!(last_bytes(stdout), last_bytes(stderr), child.wait()) };
    let (stdout, stderr, status) = tokio::time::timeout(command.timeout, output)
        .await
        .map_err(|_| fail(format!("it did not end within {} s", command.timeout.as_secs())))?;
    let status = status.map_err(|error| fail(error.to_string()))?;
    let text = [stdout, stderr].concat();
    Ok(CommandEnd { status: status.code(), output: String::from_utf8_lossy(&text).into_owned() })
}

/// The last bytes that a program writes; earlier ones are read and dropped, so that it never blocks.
async fn last_bytes(from: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    const KEPT: usize = CommandEnd::OUTPUT_BYTES_MAX / 2;
    let Some(mut from) = from else { return Vec::new() };
    let (mut kept, mut chunk) = (Vec::new(), [0_u8; 4_096]);
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..read]);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }
    kept
}
