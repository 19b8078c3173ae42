//! An app's requirements for a host as numbers and names. The agent checks them.

use serde::{Deserialize, Serialize};

/// Requirements for a host in addition to free ports and disk space. Empty and zero values are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostRequirements {
    /// Name of the app for messages, for example `RKE2`.
    pub who: String,
    /// Data directory.
    pub data_dir: String,
    /// Further directories that must be writable and allow execution.
    pub program_dirs: Vec<String>,
    /// Minimum number of logical CPUs.
    pub cpus_min: u32,
    /// Minimum memory in bytes.
    pub memory_bytes_min: u64,
    /// Maximum write latency to disk at the 99th percentile, in microseconds.
    pub write_p99_us_max: u32,
    /// Minimum MTU of the default route's interface, in bytes.
    pub mtu_min: u32,
    /// UDP ports that must be free.
    pub udp_ports: Vec<u16>,
    /// Name prefixes of the app's network interfaces; none may exist yet.
    pub link_prefixes: Vec<String>,
    /// Texts of the app's packet filter rules; no rule may contain them yet.
    pub firewall_marks: Vec<String>,
    /// Directories in which the app mounts; nothing may be mounted there yet.
    pub mount_prefixes: Vec<String>,
    /// The app's units, which must not be masked, replaced or changed.
    pub units: Vec<String>,
    /// Names of variables that the units' environment files and drop-ins must not set; since schema 3 of `host.preflight`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_variables: Vec<String>,
    /// True if the app runs containers: the kernel, resolver, firewall and security modules are checked for their needs.
    pub containers: bool,
}
