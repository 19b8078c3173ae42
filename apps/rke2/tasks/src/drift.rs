//! What a node of a running workload should have, and what an observation finds different.

use serde::{Deserialize, Serialize};

/// Digests of the files that [`Rke2Configure`](crate::Rke2Configure) wrote. The node compares them and returns only what differs: no
/// content, and no digest of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rke2Expected {
    /// SHA-256 of `config.yaml`, 64 hex digits.
    pub config_sha256: String,
    /// SHA-256 of the token file, as in the token's [`SecretRef`](gpuaas_wire::task::SecretRef).
    pub token_sha256: String,
    /// SHA-256 of the agent token file; only for servers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_token_sha256: Option<String>,
}

/// A difference between a node and what it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// Kind of the difference.
    pub kind: DeviationKind,
    /// The path or unit and what is wrong with it, at most [`Deviation::TEXT_BYTES_MAX`]. Never contains the content of a file.
    pub text: String,
}

impl Deviation {
    /// Longest text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 256;
}

/// Kinds of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviationKind {
    /// `config.yaml` has other content, or is no regular file.
    ConfigChanged,
    /// `config.yaml` does not exist.
    ConfigMissing,
    /// A token file has other content or another mode than 0600, or is no regular file.
    TokenChanged,
    /// A token file does not exist.
    TokenMissing,
    /// The unit does not start at boot.
    UnitDisabled,
    /// The unit is masked: nothing can start it.
    UnitMasked,
    /// The unit has no file.
    UnitFileMissing,
    /// The program `rke2` does not exist or does not run.
    ProgramMissing,
    /// A server has no admin kubeconfig.
    KubeconfigMissing,
    /// A file that the platform did not write adds to the configuration or overrides it.
    ForeignConfig,
}
