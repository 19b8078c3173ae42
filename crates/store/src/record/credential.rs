//! Who may ask, and whose word nodes take.

use gpuaas_model::{CorrelationId, KeyState, Name, ProjectId, Role, ServiceAccountId, Timestamp, TokenId};
use serde::{Deserialize, Serialize};

/// An API token; its secret is known to its holder alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Which.
    pub id: TokenId,
    /// Its name.
    pub name: String,
    /// SHA-256 of the secret, 64 hex digits.
    pub sha256: String,
    /// What it may do.
    pub role: Role,
    /// Whose.
    pub project: Option<ProjectId>,
    /// The service account that holds it; a person does when absent.
    #[serde(default)]
    pub service_account: Option<ServiceAccountId>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was withdrawn.
    pub revoked_at: Option<Timestamp>,
    /// Whether it can be exchanged once for a platform admin's token and do nothing else. Exchanged, it is withdrawn.
    #[serde(default)]
    pub is_bootstrap: bool,
}

impl TokenRecord {
    /// What the names of service accounts begin with in audit and lists; no other token's name does.
    pub const OF_SERVICE_ACCOUNT: &str = "service-account/";
}

/// A key that signs tasks, without its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SigningKeyRecord {
    /// Its id, as envelopes name it.
    pub key_id: String,
    /// Its 32 public bytes in base64.
    pub public: String,
    /// Where it is in its life.
    pub state: KeyState,
    /// The version of the key set since which that is its state.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it came to its state.
    pub changed_at: Timestamp,
    /// The request that made it; absent for the first.
    pub correlation: Option<CorrelationId>,
}

/// A certificate authority, without its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// SHA-256 of its certificate, 64 hex digits: what enrollment strings pin.
    pub id: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// Its certificate by the authority before and that one's own, PEM; empty for the first.
    pub by_predecessor: String,
    /// Where it is in its life.
    pub state: KeyState,
    /// The version of the key set since which that is its state.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it came to its state.
    pub changed_at: Timestamp,
    /// The request that made it; absent for the first.
    pub correlation: Option<CorrelationId>,
}

/// A program that acts for a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceAccountRecord {
    /// Which.
    pub id: ServiceAccountId,
    /// Whose.
    pub project: ProjectId,
    /// Its name, one of a kind in its project.
    pub name: Name,
    /// The most that its tokens may do.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was deleted; its tokens count no more.
    pub deleted_at: Option<Timestamp>,
}
