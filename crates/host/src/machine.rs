//! The facts of a machine that are read in the same way for every kind of host.

use std::{fs, net::IpAddr};

use camino::Utf8Path;
use gpuaas_wire::task::DiskFacts;

use crate::{error::HostError, host::Facts, root::Root};

/// The folder below which apps put their data.
const DATA_PATH: &str = "/var/lib";
/// Most bytes of the machine id that are read: it has 32 digits.
const MACHINE_ID_BYTES_MAX: u64 = 256;

/// The facts that differ between a machine and the sandboxes on it.
pub(crate) struct Identity {
    pub(crate) hostname: String,
    /// Addresses of the host; services listen on the first.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) sandbox: bool,
}

pub(crate) fn facts(root: &Root, identity: Identity) -> Result<Facts, HostError> {
    let system = rustix::system::uname();
    Ok(Facts {
        hostname: identity.hostname,
        machine_id: machine_id(root)?,
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        os: os_name(),
        kernel: system.release().to_string_lossy().into_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory_bytes(),
        addresses: identity.addresses.iter().map(ToString::to_string).collect(),
        disks: vec![disk(root, Utf8Path::new(DATA_PATH))?],
        sandbox: identity.sandbox,
    })
}

/// Returns the machine id. Every host has one; a sandbox's init generates it.
fn machine_id(root: &Root) -> Result<String, HostError> {
    let path = Utf8Path::new("/etc/machine-id");
    let missing = || HostError::file("read", path)(std::io::ErrorKind::NotFound.into());
    let id = root.text(path, MACHINE_ID_BYTES_MAX).ok_or_else(missing)?;
    Ok(id.trim().to_owned())
}

/// Returns the size and free space of the file system on which a folder is, or will be once it is created.
fn disk(root: &Root, path: &Utf8Path) -> Result<DiskFacts, HostError> {
    let disk = root.stat_vfs(path).ok_or_else(|| HostError::file("stat", path)(std::io::ErrorKind::NotFound.into()))?;
    Ok(DiskFacts {
        path: path.to_string(),
        size_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
    })
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
