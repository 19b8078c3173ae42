//! Bringing artifacts onto a node.

use gpuaas_model::TaskType;
use serde::{Deserialize, Serialize};

use super::TaskSpec;

/// An artifact by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactRef {
    /// The release's own file name, for example `rke2.linux-amd64.tar.gz`.
    pub name: String,
    /// SHA-256 of the bytes, 64 lower-case hex digits.
    pub sha256: String,
    /// Length of the bytes.
    pub size_bytes: u64,
}

/// Fetches artifacts into the node's staging folder, resuming where an earlier try ended, and checks every byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactFetch {
    /// What to fetch.
    pub artifacts: Vec<ArtifactRef>,
}

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactFetched {
    /// Bytes that travelled now; those staged earlier do not count.
    pub fetched_bytes: u64,
    /// Bytes that were already staged and verified.
    pub reused_bytes: u64,
}

impl TaskSpec for ArtifactFetch {
    const TYPE: TaskType = TaskType::ArtifactFetch;
    type Result = ArtifactFetched;
}
