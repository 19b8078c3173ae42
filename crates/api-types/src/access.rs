//! Access to a workload's cluster. Credentials themselves are in `AccessGranted` alone, at the moment of their delivery.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a workload's cluster can be reached, and by which credentials.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessAnswer {
    /// Its endpoint, once there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub endpoint: Option<String>,
    /// From where it can be reached.
    pub reachability: String,
    /// What a person should know before connecting.
    pub notes: Vec<String>,
    /// Kinds of credentials on offer.
    pub kinds: Vec<AccessKind>,
    /// What was delivered and not withdrawn.
    pub grants: Vec<AccessGrant>,
}

/// A kind of credential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessKind {
    /// Its name.
    pub name: String,
    /// Whether it is delivered when no kind is asked for.
    pub default: bool,
    /// Its life in seconds when none is asked for.
    pub ttl_seconds: u64,
    /// Its longest life in seconds.
    pub ttl_seconds_max: u64,
    /// Roles that it can carry.
    pub roles: Vec<String>,
    /// What it is.
    pub note: String,
}

/// The record of a delivered credential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessGrant {
    /// Its id.
    pub id: String,
    /// The id of its workload.
    pub workload: String,
    /// Its kind.
    pub kind: String,
    /// Its role in the cluster.
    pub role: String,
    /// Who asked.
    pub requested_by: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// When it was delivered.
    pub created_at: String,
    /// When it ends by itself.
    pub expires_at: String,
    /// When it was withdrawn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revoked_at: Option<String>,
}
