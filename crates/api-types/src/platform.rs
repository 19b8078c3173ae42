//! Replicas, projects, tokens, keys, events and audit records.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A process of this control plane.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Replica {
    /// Id of the replica. Every start has a new one.
    pub id: String,
    /// `alive`, or `lost` until the other replicas have taken over its work.
    #[schema(value_type = crate::schema::ReplicaState)]
    pub state: String,
    /// True if this replica answers the request.
    pub answers: bool,
    /// URL of its API.
    pub api_url: String,
    /// Address for nodes, `host:port`.
    pub channel: String,
    /// Address for other replicas, `host:port`. Absent if the control plane cannot have several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// Number of nodes whose channels it holds.
    pub nodes: u64,
    /// Number of operations that it drives.
    pub operations: u64,
    /// Version of the program.
    pub version: String,
    /// Time of the start.
    #[schema(format = DateTime)]
    pub started_at: String,
}

/// A tenant's project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Project {
    /// Id of the project.
    pub id: String,
    /// Name of the project.
    pub name: String,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Creates a project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// Name of the project: 1 to 63 of a-z, 0-9 and -.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
}

/// A file of history that was removed from the database: JSON lines, compressed with zstd.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Archive {
    /// Id of the archive.
    pub id: String,
    /// Kind of the entries: `operations`, `tasks`, `events` or `audit`.
    #[schema(value_type = crate::schema::ArchiveKind)]
    pub kind: String,
    /// Creation time of the oldest entry.
    #[schema(format = DateTime)]
    pub from: String,
    /// End of the newest entry; its creation time if it has no end.
    #[schema(format = DateTime)]
    pub until: String,
    /// Number of entries.
    pub entries: u64,
    /// SHA-256 of the file, 64 hex digits.
    pub sha256: String,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Time at which the archive was written.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// An API token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Id of the token.
    pub id: String,
    /// Name of the holder in audit records.
    pub name: String,
    /// Role: `platform-admin`, `platform-operator`, `platform-auditor`, `platform-metrics`, `project-admin`,
    /// `project-member`, `viewer`, `auditor` or `app-controller`.
    #[schema(value_type = crate::schema::Role)]
    pub role: String,
    /// Id of the project. Absent for platform roles.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
    /// Name of the project. Absent for platform roles.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project_name: Option<String>,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the token expires.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Time at which the token was revoked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// Creates a token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name of the holder in audit records: one line of 1 to 100 printable characters. Names that the platform uses there, for example
    /// `control-plane`, are refused.
    #[schema(min_length = 1, max_length = 100, format = "line")]
    pub name: String,
    /// Role: `platform-admin`, `platform-operator`, `platform-auditor`, `platform-metrics`, `project-admin`,
    /// `project-member`, `viewer` or `auditor`.
    #[schema(value_type = crate::schema::Role)]
    pub role: String,
    /// Name or id of the project. Defaults to the caller's project. Project roles require one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: Option<String>,
    /// Lifetime in seconds: 30 days by default, at most one year.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
}

/// Exchanges the one-time token of the first administrator for a platform admin's token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// Name of the administrator in audit records: one line of 1 to 100 printable characters.
    #[schema(min_length = 1, max_length = 100, format = "line")]
    pub name: String,
    /// Lifetime of the new token in seconds: 30 days by default, at most one year.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
}

/// A new token with its secret. The server shows the secret only in this response.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token.
    pub token: Token,
    /// The secret.
    pub secret: String,
}

/// A program that acts for a project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceAccount {
    /// Id of the service account.
    pub id: String,
    /// Name, unique in the project. Audit records show it as `service-account/NAME`.
    pub name: String,
    /// Id of the project.
    pub project: String,
    /// Role of its tokens: `project-admin`, `project-member`, `viewer`, `auditor` or `app-controller`.
    #[schema(value_type = crate::schema::ProjectRole)]
    pub role: String,
    /// Id of the workload that it controls, with the role `app-controller`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// Name of that workload.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload_name: Option<String>,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of deletion.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub deleted_at: Option<String>,
}

/// Creates a service account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceAccount {
    /// Name: 1 to 63 of a-z, 0-9 and -. Names that the platform uses in audit records are refused.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// Role: `project-admin`, `project-member`, `viewer` or `auditor`; `app-controller` with `workload`.
    #[schema(value_type = crate::schema::ProjectRole)]
    pub role: String,
    /// Name or id of the workload that the account controls. Only the role `app-controller` has one, and needs it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub workload: Option<String>,
    /// Name or id of the project. Defaults to the caller's project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: Option<String>,
}

/// Creates a token for a service account.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceAccountToken {
    /// Lifetime in seconds: one hour by default, at most 30 days.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub ttl_seconds: Option<u64>,
}

/// A key that signs tasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SigningKey {
    /// Id of the key, as tasks name it.
    pub id: String,
    /// `staged`, `active`, `grace`, `retired` or `revoked`.
    #[schema(value_type = crate::schema::SigningKeyState)]
    pub state: String,
    /// Condition for the next state. Absent if no automatic change is due.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// The 32 bytes of the public key, in base64.
    pub public: String,
    /// Version of the key set in which the key entered its state.
    pub version: u64,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the key entered its state.
    #[schema(format = DateTime)]
    pub changed_at: String,
}

/// The key that encrypts secrets in the database, identified by its public id. The API never returns the key itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SealingKey {
    /// Id of the key in use, 16 hex digits.
    pub id: String,
    /// `settled`, `next_taken` or `rotating`.
    #[schema(value_type = crate::schema::SealingKeyState)]
    pub state: String,
    /// Condition for the next state, or the action that an operator has to take. Absent if no change is due.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// Id of the key that the answering replica has loaded and that is not in use yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// Id of the previous key, while rows may still be encrypted with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<String>,
    /// Number of rows that are not yet encrypted with the key in use.
    pub rows_left: u64,
    /// Time at which the key came into use or, in state `settled`, became the only one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub since: Option<String>,
}

/// A certificate authority.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Authority {
    /// SHA-256 of the certificate, 64 hex digits. Enrollment strings pin it.
    pub id: String,
    /// `staged`, `active`, `grace` or `retired`.
    #[schema(value_type = crate::schema::AuthorityState)]
    pub state: String,
    /// Condition for the next state. Absent if no automatic change is due.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// Certificate in PEM.
    pub certificate: String,
    /// Version of the key set in which the authority entered its state.
    pub version: u64,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time at which the authority entered its state.
    #[schema(format = DateTime)]
    pub changed_at: String,
}

/// Continues a rotation without the nodes that delay it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceAuthority {
    /// Id of the waiting authority.
    #[schema(min_length = 64, max_length = 64, pattern = "^[0-9a-f]{64}$")]
    pub authority: String,
    /// Present state of the authority. The request is refused if the authority has left it.
    #[schema(value_type = crate::schema::WaitingAuthorityState)]
    pub state: String,
    /// Reason in one line of 1 to 500 printable characters, kept in the audit record.
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub reason: String,
}

/// The caller of the request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// Name of the caller in audit records.
    pub name: String,
    /// Role: `platform-admin`, `platform-operator`, `platform-auditor`, `platform-metrics`, `project-admin`,
    /// `project-member`, `viewer`, `auditor` or `app-controller`.
    #[schema(value_type = crate::schema::Role)]
    pub role: String,
    /// Id of the project. Absent for platform roles.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
    /// Id of the workload that the caller controls. Absent for roles of the platform or of a project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// Id of the token.
    #[serde(default)]
    pub token: String,
    /// Version of the control plane.
    #[serde(default)]
    pub control_plane_version: String,
    /// Permissions that the caller has, by the names in `x-permission` of operations and in `docs/roles.md`.
    #[serde(default)]
    #[schema(value_type = Vec<crate::schema::Permission>)]
    pub permissions: Vec<String>,
}

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Stream of the event: `platform` or `project/ID`.
    pub stream: String,
    /// Number without gaps within the stream. Send the last received one to continue after it.
    pub sequence: u64,
    /// Time of the event.
    #[schema(format = DateTime)]
    pub at: String,
    /// Kind of event, for example `node.activated`.
    #[schema(value_type = crate::schema::EventKind)]
    pub kind: String,
    /// Kind of the object concerned, for example `node`.
    pub subject_kind: String,
    /// Id of the object concerned.
    pub subject_id: String,
    /// Correlation id of the request that caused the event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
    /// Data whose shape depends on the kind.
    pub data: Value,
}

/// An audit record.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Number without gaps.
    pub sequence: u64,
    /// Time of the action.
    #[schema(format = DateTime)]
    pub at: String,
    /// Name of the actor.
    pub actor: String,
    /// `principal`, `node` or `control_plane`.
    #[schema(value_type = crate::schema::ActorType)]
    pub actor_type: String,
    /// Id of the actor's token, which distinguishes actors with the same name. Absent for nodes, for the control plane, for several tokens
    /// together, and in records of versions that did not store it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor_id: Option<String>,
    /// Id of the service account to which the token belongs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub service_account: Option<String>,
    /// Role of the actor's token at that time. Absent like `actor_id`, and in records of versions that did not store it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<crate::schema::Role>)]
    pub actor_role: Option<String>,
    /// Action, `noun.verb`.
    #[schema(value_type = crate::schema::AuditAction)]
    pub action: String,
    /// Target of the action, `kind/name`.
    pub target: String,
    /// Id of the project concerned.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
    /// Id of the workload that the action serves, also if its target is another object, such as the node of a task.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// `accepted`, `refused` or `failed`; of a completed task `succeeded` or `failed`.
    #[schema(value_type = crate::schema::AuditResult)]
    pub result: String,
    /// Correlation id of the request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
    /// Details of the action. They never contain a secret.
    pub metadata: Value,
}
