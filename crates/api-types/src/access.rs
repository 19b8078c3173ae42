//! Access to a workload's cluster. Only `AccessGranted` contains a credential, at the moment of its delivery.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Endpoint of a workload's cluster, with the available and the delivered credentials.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessAnswer {
    /// Endpoint of the cluster. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub endpoint: Option<String>,
    /// Network from which the endpoint is reachable, for example `node-network`.
    pub reachability: String,
    /// Hints for a person who connects.
    pub notes: Vec<String>,
    /// Available kinds of credentials.
    pub kinds: Vec<AccessKind>,
    /// Grants that are not revoked.
    pub grants: Vec<AccessGrant>,
}

/// A kind of credential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessKind {
    /// Name of the kind: `direct` or `break-glass`.
    #[schema(value_type = crate::schema::AccessKindName)]
    pub name: String,
    /// True if a request without a kind gets this one.
    pub default: bool,
    /// Default lifetime in seconds.
    pub ttl_seconds: u64,
    /// Longest lifetime in seconds.
    pub ttl_seconds_max: u64,
    /// Roles that the credential can have.
    #[schema(value_type = Vec<crate::schema::ClusterRole>)]
    pub roles: Vec<String>,
    /// These roles, each with what it needs and how to use it.
    #[serde(default)]
    pub offered_roles: Vec<OfferedRole>,
    /// Description of the kind.
    pub note: String,
}

/// A role that a kind of credential can have.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OfferedRole {
    /// Name of the role.
    #[schema(value_type = crate::schema::ClusterRole)]
    pub name: String,
    /// Permission that the requester needs for it.
    #[schema(value_type = crate::schema::Permission)]
    pub permission: String,
    /// Command that works with a credential of this role; `FILE` stands for the credential's file.
    pub check: String,
    /// The same command, once the credential is merged into the file that clients read.
    pub check_merged: String,
}

/// The record of a delivered credential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessGrant {
    /// Id of the access grant.
    pub id: String,
    /// Id of the workload.
    pub workload: String,
    /// Kind of credential: `direct` or `break-glass`.
    #[schema(value_type = crate::schema::AccessKindName)]
    pub kind: String,
    /// Role in the cluster: `cluster-admin` or `cluster-view`.
    #[schema(value_type = crate::schema::ClusterRole)]
    pub role: String,
    /// Name of the requester, as in audit records.
    pub requested_by: String,
    /// Reason that the requester gave.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Time of delivery.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the credential expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Time at which the credential was revoked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}
