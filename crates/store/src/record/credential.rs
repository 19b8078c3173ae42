//! Records of credentials: API tokens, service accounts, signing keys and authorities.

use gpuaas_model::{CorrelationId, KeyState, Name, ProjectId, Role, ServiceAccountId, Timestamp, TokenId, WorkloadId};
use serde::{Deserialize, Serialize};

/// An API token. Its secret is known only to its holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Unique id of the token.
    pub id: TokenId,
    /// The display name of the token.
    pub name: String,
    /// SHA-256 of the secret, 64 hex digits.
    pub sha256: String,
    /// The role that the token grants.
    pub role: Role,
    /// The project that the token is valid for; absent for the platform.
    pub project: Option<ProjectId>,
    /// The service account that holds the token; absent if a person holds it.
    #[serde(default)]
    pub service_account: Option<ServiceAccountId>,
    /// The only workload that exists for the holder, if the role acts for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadId>,
    /// When the token was created.
    pub created_at: Timestamp,
    /// When the token expires; absent if it never does.
    pub expires_at: Option<Timestamp>,
    /// When the token was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Whether the token is valid only for one exchange for a platform admin's token. The exchange revokes it.
    #[serde(default)]
    pub is_bootstrap: bool,
}

impl TokenRecord {
    /// Prefix of the names of service accounts in audit records and lists. No other token's name begins with it.
    pub const SERVICE_ACCOUNT_PREFIX: &str = "service-account/";

    /// Returns whether the token authenticates its holder at `now`. A token without an expiry is not valid.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_some_and(|at| at > now)
    }
}

/// A task-signing key, without its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SigningKeyRecord {
    /// The key's id, as used in envelopes.
    pub key_id: String,
    /// The 32-byte public key in base64.
    pub public: String,
    /// Lifecycle state of the key.
    pub state: KeyState,
    /// The version of the key set in which the key got this state.
    pub version: u64,
    /// When the key was created.
    pub created_at: Timestamp,
    /// When the key got its state.
    pub changed_at: Timestamp,
    /// The request that created the key; absent for the first key.
    pub correlation: Option<CorrelationId>,
}

/// A certificate authority, without its private key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// SHA-256 of the certificate, 64 hex digits; enrollment strings pin it.
    pub id: String,
    /// The authority's certificate, PEM.
    pub certificate: String,
    /// The authority's certificate issued by its predecessor, followed by the predecessor's own, PEM; empty for the
    /// first authority.
    pub by_predecessor: String,
    /// Lifecycle state of the authority.
    pub state: KeyState,
    /// The version of the key set in which the authority got this state.
    pub version: u64,
    /// When the authority was created.
    pub created_at: Timestamp,
    /// When the authority got its state.
    pub changed_at: Timestamp,
    /// The request that created the authority; absent for the first one.
    pub correlation: Option<CorrelationId>,
}

/// A program that acts for a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceAccountRecord {
    /// Unique id of the service account.
    pub id: ServiceAccountId,
    /// The project that it acts for.
    pub project: ProjectId,
    /// The name, unique within the project.
    pub name: Name,
    /// The highest role that its tokens may have.
    pub role: Role,
    /// The workload that it controls, if the role acts for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadId>,
    /// When the service account was created.
    pub created_at: Timestamp,
    /// When the service account was deleted; its tokens are invalid from then on.
    pub deleted_at: Option<Timestamp>,
}
