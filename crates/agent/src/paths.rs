//! Paths of the agent's own files.

use camino::{Utf8Path, Utf8PathBuf};

/// Path of the agent's folder.
pub(crate) const FOLDER: &str = "/var/lib/gpuaas-agent";
/// File name of the identity.
pub(crate) const IDENTITY: &str = "identity.json";

/// Returns the path of a file in the agent's folder.
pub(crate) fn path(name: &str) -> Utf8PathBuf {
    Utf8Path::new(FOLDER).join(name)
}
