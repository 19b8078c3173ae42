//! Paths on this host, and helpers that write files there.
//!
//! Callers pass paths as on a real host; on a sandbox node, the sandbox's root is prepended.
//! Every write goes to a temporary file that is renamed into place, so no reader sees a partial file. [`write_durable`] also
//! syncs to disk; use it for content that cannot be regenerated (tokens, CA keys, node passwords).

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};

use camino::{Utf8Path, Utf8PathBuf};

/// Path of containerd's socket with RKE2, which tools for RKE2 nodes use.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
/// The variable in which a sandbox's init passes the sandbox's root folder.
pub(crate) const ROOT_VARIABLE: &str = "GPUAAS_SANDBOX_ROOT";
/// RKE2's default for `data-dir`.
pub(crate) const DEFAULT_DATA_DIR: &str = "/var/lib/rancher/rke2";

/// Maps the host's paths to those that this process opens.
#[derive(Clone, Debug)]
pub(crate) struct HostPaths {
    root: Option<Utf8PathBuf>,
    data_dir: Utf8PathBuf,
}

impl HostPaths {
    /// Creates the mapping for `root` (none on a real host) and RKE2's `data-dir`, given as on a real host.
    pub(crate) fn new(root: Option<Utf8PathBuf>, data_dir: &str) -> Self {
        let mut paths = Self { root, data_dir: Utf8PathBuf::new() };
        paths.data_dir = paths.at(data_dir);
        paths
    }

    /// The root in [`ROOT_VARIABLE`]; none if the variable is unset or empty.
    pub(crate) fn root_from_env() -> Option<Utf8PathBuf> {
        std::env::var(ROOT_VARIABLE).ok().filter(|root| !root.is_empty()).map(Utf8PathBuf::from)
    }

    /// Whether this node is a sandbox: a folder that stands for a machine.
    pub(crate) fn in_sandbox(&self) -> bool {
        self.root.is_some()
    }

    /// The path to open for the host's `path`.
    pub(crate) fn at(&self, path: &str) -> Utf8PathBuf {
        match &self.root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Utf8PathBuf::from(path),
        }
    }

    /// A path inside RKE2's data directory.
    pub(crate) fn data(&self, relative: &str) -> Utf8PathBuf {
        self.data_dir.join(relative)
    }

    /// A path inside the server's TLS folder.
    pub(crate) fn tls(&self, relative: &str) -> Utf8PathBuf {
        self.data_dir.join("server/tls").join(relative)
    }

    /// A path inside the server's credential folder.
    pub(crate) fn cred(&self, relative: &str) -> Utf8PathBuf {
        self.data_dir.join("server/cred").join(relative)
    }

    /// The manifest of a static pod.
    pub(crate) fn pod_manifest(&self, name: &str) -> Utf8PathBuf {
        self.data("agent/pod-manifests").join(format!("{name}.yaml"))
    }

    /// Removes the manifest of a static pod, if any. The kubelet then stops the pod when it next checks the folder.
    pub(crate) fn remove_pod_manifest(&self, name: &str) -> io::Result<()> {
        let path = self.pod_manifest(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Creates `path` and its missing parents; `mode` applies to created folders only, less the umask.
pub(crate) fn make_dir(path: &Utf8Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(|error| at(path, error))
}

/// Replaces the file at `path`. A crash of this process leaves the old or the new content.
pub(crate) fn write(path: &Utf8Path, mode: u32, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, mode, content.as_ref(), false).map_err(|error| at(path, error))
}

/// As [`write()`], and returns only after file and folder are synced to disk.
pub(crate) fn write_durable(path: &Utf8Path, mode: u32, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, mode, content.as_ref(), true).map_err(|error| at(path, error))
}

fn replace(path: &Utf8Path, mode: u32, content: &[u8], durable: bool) -> io::Result<()> {
    let dir = path.parent().unwrap_or_else(|| Utf8Path::new("."));
    let temporary = dir.join(format!(".{}.{}", path.file_name().unwrap_or("file"), std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    // Set here and not in `open`, where the umask would clear bits.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&temporary, path)?;
    if durable {
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Makes `path` a symbolic link to `target`, replacing any other file or link there.
pub(crate) fn link(path: &Utf8Path, target: &str) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|existing| existing.as_os_str() == target) {
        return Ok(());
    }
    let temporary = path.with_file_name(format!(".{}.{}", path.file_name().unwrap_or("link"), std::process::id()));
    let _ = fs::remove_file(&temporary);
    std::os::unix::fs::symlink(target, &temporary).map_err(|error| at(path, error))?;
    fs::rename(&temporary, path).map_err(|error| at(path, error))
}

/// Returns the content of `path`, or none if there is no such file.
pub(crate) fn read_optional(path: &Utf8Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, error)),
    }
}

fn at(path: &Utf8Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_prefixes_true_paths_and_a_real_host_does_not() {
        let sandbox = HostPaths::new(Some("/s/n1".into()), DEFAULT_DATA_DIR);
        assert_eq!(sandbox.at("/etc/x"), "/s/n1/etc/x");
        assert_eq!(sandbox.data("server/token"), "/s/n1/var/lib/rancher/rke2/server/token");
        let real = HostPaths::new(None, "/data/rke2");
        assert_eq!(real.at("/etc/x"), "/etc/x");
        assert_eq!(real.data("bin"), "/data/rke2/bin");
    }

    #[test]
    fn a_written_file_has_exactly_the_mode_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().join("f")).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        write_durable(&path, 0o666, "one").unwrap();
        assert_eq!(mode(), 0o666, "the mode does not depend on the umask");
        write(&path, 0o600, "two").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode()), ("two", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file remains");
    }
}
