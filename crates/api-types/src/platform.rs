//! Replicas, projects, tokens, events, audit.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One of the processes that are this control plane together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Replica {
    /// Its id; a fresh one with every start.
    pub id: String,
    /// `alive`, or `lost` until the others have taken over.
    pub state: String,
    /// Whether it is the one that answers this request.
    pub answers: bool,
    /// Its API.
    pub api_url: String,
    /// Where nodes reach it, `host:port`.
    pub channel: String,
    /// Where other replicas reach it, `host:port`; absent where there can be none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// Nodes whose channels it holds.
    pub nodes: u64,
    /// Operations that it carries out.
    pub operations: u64,
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: String,
}

/// A tenant's project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Project {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: String,
}

/// Makes a project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// 1 to 63 of a-z, 0-9 and -.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
}

/// A file of history that left the database: lines of JSON, compressed with zstd.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Archive {
    /// Its id.
    pub id: String,
    /// What it holds: `operations`, `tasks`, `events` or `audit`.
    pub kind: String,
    /// When its oldest entry was made.
    pub from: String,
    /// When its newest entry ended.
    pub until: String,
    /// Operations, tasks, events or audit records in it.
    pub entries: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Length of the file.
    pub size_bytes: u64,
    /// When it was written.
    pub created_at: String,
}

/// An API token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its id.
    pub id: String,
    /// What the audit calls its holder.
    pub name: String,
    /// `platform-admin`, `platform-operator`, `project-admin`, `project-member` or `viewer`.
    pub role: String,
    /// The id of its project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
    /// When it was made.
    pub created_at: String,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<String>,
    /// When it was withdrawn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revoked_at: Option<String>,
}

/// Makes a token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What the audit calls its holder: 1 to 100 printable characters, in one line, and no name that the platform itself has there, such as
    /// `control-plane`.
    #[schema(min_length = 1, max_length = 100, format = "line")]
    pub name: String,
    /// `platform-admin`, `platform-operator`, `platform-metrics`, `project-admin`, `project-member` or `viewer`.
    #[schema(pattern = "^(platform-admin|platform-operator|platform-metrics|project-admin|project-member|viewer)$")]
    pub role: String,
    /// The project's name or id; the caller's own when absent; needed for the roles of a project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: Option<String>,
    /// Its life in seconds; 30 days when absent, a year at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
}

/// Exchanges the one-time token of the first administrator for a platform admin's token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// What the audit calls the administrator: 1 to 100 printable characters, in one line.
    #[schema(min_length = 1, max_length = 100, format = "line")]
    pub name: String,
    /// The new token's life in seconds; 30 days when absent, a year at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub ttl_seconds: Option<u64>,
}

/// A new token, with its secret: shown here and never again.
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
    /// Its id.
    pub id: String,
    /// Its name, one of a kind in its project; the audit shows it as `service-account/NAME`.
    pub name: String,
    /// The id of its project.
    pub project: String,
    /// `project-admin`, `project-member` or `viewer`: its tokens' role.
    pub role: String,
    /// When it was made.
    pub created_at: String,
    /// When it was deleted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deleted_at: Option<String>,
}

/// Makes a service account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceAccount {
    /// 1 to 63 of a-z, 0-9 and -, and no name that the platform itself has in the audit.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// `project-admin`, `project-member` or `viewer`.
    #[schema(pattern = "^(project-admin|project-member|viewer)$")]
    pub role: String,
    /// The project's name or id; the caller's own when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    pub project: Option<String>,
}

/// Makes a token for a service account.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateServiceAccountToken {
    /// Its life in seconds; an hour when absent, 30 days at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub ttl_seconds: Option<u64>,
}

/// A key that signs tasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SigningKey {
    /// Its id, as tasks name it.
    pub id: String,
    /// `staged`, `active`, `grace`, `retired` or `revoked`.
    pub state: String,
    /// What its next state waits for; absent when nothing is to come by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// Its 32 public bytes in base64.
    pub public: String,
    /// The version of the key set since which that is its state.
    pub version: u64,
    /// When it was made.
    pub created_at: String,
    /// When it came to its state.
    pub changed_at: String,
}

/// The key that seals what the store keeps, by its public id; the key itself is never told.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SealingKey {
    /// The id of the key in use, 16 hex digits.
    pub id: String,
    /// `settled`, `next_taken` or `rotating`.
    pub state: String,
    /// What its next state waits for, or a person has to do; absent when nothing is to come.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// The id of the key that the answering replica has taken and that is not in use yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// The id of the key before, for as long as rows under it may be left.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<String>,
    /// Rows that are still to come under the key in use.
    pub rows_left: u64,
    /// Since when that key is in use or, once settled, in use alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<String>,
}

/// A certificate authority.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Authority {
    /// SHA-256 of its certificate, 64 hex digits: what enrollment strings pin.
    pub id: String,
    /// `staged`, `active`, `grace` or `retired`.
    pub state: String,
    /// What its next state waits for; absent when nothing is to come by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// Its certificate, PEM.
    pub certificate: String,
    /// The version of the key set since which that is its state.
    pub version: u64,
    /// When it was made.
    pub created_at: String,
    /// When it came to its state.
    pub changed_at: String,
}

/// Has a rotation go on without the nodes that hold it up.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceAuthority {
    /// The id of the authority that waits.
    #[schema(min_length = 64, max_length = 64, pattern = "^[0-9a-f]{64}$")]
    pub authority: String,
    /// The state that it is in: where it has left it, nothing happens.
    #[schema(pattern = "^(staged|grace)$")]
    pub state: String,
    /// Why, in 1 to 500 printable characters, in one line; kept in the audit.
    #[schema(min_length = 1, max_length = 500, format = "line")]
    pub reason: String,
}

/// Who the caller is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The name that the audit shows.
    pub name: String,
    /// `platform-admin`, `platform-operator`, `project-admin`, `project-member` or `viewer`.
    pub role: String,
    /// The id of its project.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// `platform` or `project/ID`.
    pub stream: String,
    /// Without gaps within its stream; give the last one seen to go on behind it.
    pub sequence: u64,
    /// When.
    pub at: String,
    /// Of what kind, for example `node.activated`.
    pub kind: String,
    /// What it is about.
    pub subject_kind: String,
    /// Its id.
    pub subject_id: String,
    /// The request behind it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
    /// What happened.
    pub data: Value,
}

/// A record of the audit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Grows without gaps.
    pub sequence: u64,
    /// When.
    pub at: String,
    /// Who acted.
    pub actor: String,
    /// `principal`, `node` or `control_plane`.
    pub actor_type: String,
    /// The id of the token that acted, which tells actors of one name apart; absent for nodes, the control plane itself, several tokens together, and
    /// in records of versions that did not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actor_id: Option<String>,
    /// The id of the service account that the token is of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub service_account: Option<String>,
    /// What was done, `noun.verb`.
    pub action: String,
    /// To what.
    pub target: String,
    /// The id of the project that it is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
    /// `accepted`, `refused` or `failed`.
    pub result: String,
    /// The request behind it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
    /// More about it; never a secret.
    pub metadata: Value,
}
