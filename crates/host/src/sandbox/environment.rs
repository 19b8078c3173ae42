//! How a process learns that it lives in a sandbox, and what its paths really are.

use std::{ffi::OsString, net::IpAddr};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};

use crate::error::HostError;

/// The folder that stands for `/`.
pub const ROOT: &str = "GPUAAS_SANDBOX_ROOT";
/// The node's own address.
pub const ADDRESS: &str = "GPUAAS_SANDBOX_ADDRESS";
/// The node's host name.
pub const HOSTNAME: &str = "GPUAAS_SANDBOX_HOSTNAME";
/// The init's socket.
pub const SOCKET: &str = "GPUAAS_SANDBOX_SOCKET";
/// The unit that a process belongs to.
pub const UNIT: &str = "GPUAAS_SANDBOX_UNIT";

/// By how many seconds the node's clock is ahead of its machine's, negative when it is behind: for tests of clocks that are off.
pub const CLOCK_SKEW: &str = "GPUAAS_SANDBOX_CLOCK_SKEW_SECONDS";

/// By how much the clock of the sandbox of this process is off; nothing outside of one.
pub fn clock_skew_seconds() -> i64 {
    let skew = std::env::var(ROOT).and_then(|_| std::env::var(CLOCK_SKEW));
    skew.ok().and_then(|skew| skew.parse().ok()).unwrap_or(0)
}

/// What a sandbox is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxEnvironment {
    /// The folder that stands for `/`.
    pub root: Utf8PathBuf,
    /// The node's own address.
    pub address: IpAddr,
    /// The node's host name.
    pub hostname: String,
    /// The init's socket.
    pub socket: Utf8PathBuf,
}

impl SandboxEnvironment {
    /// The sandbox of this process; `None` on a real host.
    pub fn from_process() -> Result<Option<Self>, HostError> {
        let read = |name: &str| std::env::var_os(name).and_then(|value: OsString| value.into_string().ok());
        let Some(root) = read(ROOT) else { return Ok(None) };
        let need = |name: &'static str| read(name).ok_or_else(|| HostError::Init(format!("{name} is not set")));
        let address = need(ADDRESS)?.parse().map_err(|_| HostError::Init(format!("{ADDRESS} is no address")))?;
        Ok(Some(Self { root: root.into(), address, hostname: need(HOSTNAME)?, socket: need(SOCKET)?.into() }))
    }

    /// What every process in the sandbox has in its environment.
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
        // The init's own, for all that runs in its sandbox.
        variables.extend(std::env::var(CLOCK_SKEW).ok().map(|skew| (CLOCK_SKEW, skew)));
        variables
    }

    /// Where a true path really lies. Refuses what is relative, holds `..`, or goes through a link out of the root.
    pub fn resolve(&self, path: &Utf8Path) -> Result<Utf8PathBuf, HostError> {
        let refuse = || HostError::Path { path: path.to_owned() };
        let mut real = self.root.clone();
        if !path.is_absolute() {
            return Err(refuse());
        }
        for component in path.components() {
            match component {
                Utf8Component::RootDir | Utf8Component::CurDir => {}
                Utf8Component::Normal(name) => real.push(name),
                Utf8Component::ParentDir | Utf8Component::Prefix(_) => return Err(refuse()),
            }
        }
        let folder = real.ancestors().skip(1).find(|folder| folder.exists()).ok_or_else(refuse)?;
        let (folder, root) = (folder.canonicalize_utf8(), self.root.canonicalize_utf8());
        match (folder, root) {
            (Ok(folder), Ok(root)) if folder.starts_with(&root) => Ok(real),
            _ => Err(refuse()),
        }
    }

    /// The same for what follows a link at the path's own end. Refuses one that leads out of the root, and one that leads nowhere:
    /// whatever is made through it would be made who knows where.
    pub fn resolve_followed(&self, path: &Utf8Path) -> Result<Utf8PathBuf, HostError> {
        let real = self.resolve(path)?;
        if !real.is_symlink() {
            return Ok(real);
        }
        match (real.canonicalize_utf8(), self.root.canonicalize_utf8()) {
            (Ok(end), Ok(root)) if end.starts_with(&root) => Ok(real),
            _ => Err(HostError::Path { path: path.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(root: &std::path::Path) -> SandboxEnvironment {
        SandboxEnvironment {
            root: Utf8PathBuf::from_path_buf(root.to_owned()).unwrap(),
            address: "127.0.0.9".parse().unwrap(),
            hostname: "n".into(),
            socket: "/s".into(),
        }
    }

    #[test]
    fn true_paths_lie_under_the_root_and_no_way_leads_out() {
        let root = tempfile::tempdir().unwrap();
        let sandbox = sandbox(root.path());
        assert_eq!(sandbox.resolve("/etc/x".into()).unwrap(), sandbox.root.join("etc/x"));
        for bad in ["etc/x", "/../etc/x", "/etc/../../x", ""] {
            assert!(sandbox.resolve(bad.into()).is_err(), "{bad}");
        }
        std::os::unix::fs::symlink("/etc", root.path().join("out")).unwrap();
        assert!(sandbox.resolve("/out/passwd".into()).is_err());
    }
}
