//! The environment variables that make a process part of a sandbox.

use std::{ffi::OsString, net::IpAddr};

use camino::Utf8PathBuf;

use crate::error::HostError;

/// The folder that is `/` in the sandbox.
pub const ROOT: &str = "GPUAAS_SANDBOX_ROOT";
/// The node's own IP address.
pub const ADDRESS: &str = "GPUAAS_SANDBOX_ADDRESS";
/// The node's host name.
pub const HOSTNAME: &str = "GPUAAS_SANDBOX_HOSTNAME";
/// The path of the init's socket.
pub const SOCKET: &str = "GPUAAS_SANDBOX_SOCKET";
/// The unit that a process belongs to.
pub const UNIT: &str = "GPUAAS_SANDBOX_UNIT";

/// Seconds by which the node's clock is ahead of its machine's, negative if behind; for tests with wrong clocks.
pub const CLOCK_SKEW: &str = "GPUAAS_SANDBOX_CLOCK_SKEW_SECONDS";

/// Returns the clock skew of this process's sandbox in seconds; 0 outside a sandbox.
pub fn clock_skew_seconds() -> i64 {
    let skew = std::env::var(ROOT).and_then(|_| std::env::var(CLOCK_SKEW));
    skew.ok().and_then(|skew| skew.parse().ok()).unwrap_or(0)
}

/// The parameters of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxEnvironment {
    /// The folder that is `/` in the sandbox.
    pub root: Utf8PathBuf,
    /// The node's own IP address.
    pub address: IpAddr,
    /// The node's host name.
    pub hostname: String,
    /// The path of the init's socket.
    pub socket: Utf8PathBuf,
}

impl SandboxEnvironment {
    /// Reads the sandbox of this process; `None` on a real host. Fails if a variable is missing or invalid.
    pub fn from_process() -> Result<Option<Self>, HostError> {
        let read = |name: &str| std::env::var_os(name).and_then(|value: OsString| value.into_string().ok());
        let Some(root) = read(ROOT) else { return Ok(None) };
        let need = |name: &'static str| read(name).ok_or_else(|| HostError::Init(format!("{name} is not set")));
        let address = need(ADDRESS)?.parse().map_err(|_| HostError::Init(format!("{ADDRESS} is not an IP address")))?;
        Ok(Some(Self { root: root.into(), address, hostname: need(HOSTNAME)?, socket: need(SOCKET)?.into() }))
    }

    /// Returns the environment variables of every process in the sandbox.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let root = &self.root;
        let mut variables = vec![
            (ROOT, root.to_string()),
            (ADDRESS, self.address.to_string()),
            (HOSTNAME, self.hostname.clone()),
            (SOCKET, self.socket.to_string()),
            ("PATH", format!("{root}/.sandbox/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")),
            ("HOME", format!("{root}/root")),
        ];
        // The init's own clock skew applies to everything in its sandbox.
        variables.extend(std::env::var(CLOCK_SKEW).ok().map(|skew| (CLOCK_SKEW, skew)));
        variables
    }
}
