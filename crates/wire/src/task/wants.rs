//! What an app wants of a host, as numbers and names: the agent looks and judges.

use serde::{Deserialize, Serialize};

/// What an app wants of a host besides free ports and room. What is left empty or zero is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostWants {
    /// Who wants it, for sentences: `RKE2`.
    pub who: String,
    /// Where its data lies.
    pub data_dir: String,
    /// Folders that it must be able to write in and run programs from, besides its data.
    pub program_dirs: Vec<String>,
    /// Logical CPUs.
    pub cpus_min: u32,
    /// Memory.
    pub memory_bytes_min: u64,
    /// The longest that 99 of 100 writes may take to reach the disk.
    pub write_p99_us_max: u32,
    /// The largest packet that the default route's link must carry.
    pub mtu_min: u32,
    /// UDP ports that must be free.
    pub udp_ports: Vec<u16>,
    /// Beginnings of the names of its network links, none of which may be there yet.
    pub link_prefixes: Vec<String>,
    /// Texts of its rules in the packet filter, none of which may be there yet.
    pub firewall_marks: Vec<String>,
    /// Folders that it mounts in, where nothing may be mounted yet.
    pub mount_prefixes: Vec<String>,
    /// Its units, which nobody else may have masked, replaced or changed.
    pub units: Vec<String>,
    /// Names of variables that neither its units' environment files nor drop-ins may set; since schema 3 of `host.preflight`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_variables: Vec<String>,
    /// Whether it runs containers: kernel, resolver, firewall and security modules are looked at for what those need.
    pub containers: bool,
}
