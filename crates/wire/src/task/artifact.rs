//! Downloading artifacts to a node.

use gpuaas_model::TaskType;
use serde::{Deserialize, Serialize};

use super::TaskSpec;

/// Reference to an artifact by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactRef {
    /// File name in the release, for example `rke2.linux-amd64.tar.gz`.
    pub name: String,
    /// SHA-256 of the contents, 64 lower-case hex digits.
    pub sha256: String,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// Downloads artifacts to the node's staging directory, resumes interrupted downloads and verifies every byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactFetch {
    /// Artifacts to download.
    pub artifacts: Vec<ArtifactRef>,
}

/// Result of [`ArtifactFetch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactFetched {
    /// Bytes downloaded by this task, without those staged earlier.
    pub fetched_bytes: u64,
    /// Bytes that were already staged and verified.
    pub reused_bytes: u64,
}

impl TaskSpec for ArtifactFetch {
    const TYPE: TaskType = TaskType::ArtifactFetch;
    type Result = ArtifactFetched;
}
