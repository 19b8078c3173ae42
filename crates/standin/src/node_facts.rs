//! Capacity, system information and addresses in the KubeNode's status, read from the machine.

use std::fs;

use serde_json::{Value, json};

use crate::identity::Identity;
use crate::paths::HostPaths;
use crate::version::{CONTAINER_RUNTIME, RELEASE};

/// The kubelet's default for `max-pods`.
pub(crate) const PODS_MAX: u32 = 110;

/// `status.capacity` and also `status.allocatable`: the stand-in reserves nothing.
pub(crate) fn capacity(host: &HostPaths) -> Value {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_kib =
        field("/proc/meminfo", "MemTotal:").and_then(|text| text.trim_end_matches(" kB").trim().parse::<u64>().ok());
    let disk = rustix::fs::statvfs(host.at("/").as_std_path()).map_or(0, |fs| fs.f_blocks.saturating_mul(fs.f_frsize));
    json!({
        "cpu": cpus.to_string(),
        "memory": format!("{}Ki", memory_kib.unwrap_or(0)),
        "ephemeral-storage": format!("{}Ki", disk / 1024),
        "pods": PODS_MAX.to_string(),
    })
}

/// `status.nodeInfo`.
pub(crate) fn node_info(host: &HostPaths) -> Value {
    let machine_id =
        first_line(host.at("/etc/machine-id").as_str()).or_else(|| first_line("/etc/machine-id")).unwrap_or_default();
    json!({
        "machineID": machine_id,
        "systemUUID": first_line("/sys/class/dmi/id/product_uuid").unwrap_or_else(|| machine_id.clone()),
        "bootID": first_line("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        "kernelVersion": rustix::system::uname().release().to_string_lossy(),
        "osImage": field("/etc/os-release", "PRETTY_NAME=").map(|text| text.trim_matches('"').to_owned()).unwrap_or_default(),
        "containerRuntimeVersion": CONTAINER_RUNTIME,
        "kubeletVersion": RELEASE,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture(),
    })
}

/// `status.addresses`.
pub(crate) fn addresses(node: &Identity) -> Value {
    json!([
        { "type": "InternalIP", "address": node.address.to_string() },
        { "type": "Hostname", "address": node.hostname },
    ])
}

/// The architecture as Go and Kubernetes name it, such as `amd64`.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(str::to_owned)
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}
