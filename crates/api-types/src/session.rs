//! Sessions of browsers and sign-in links.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Project;

/// Signs a browser in, with exactly one of the fields.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The code of a one-time sign-in link: what follows `#sign-in=` in it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 67, max_length = 67, pattern = "^gpuaas-link_[A-Za-z0-9_-]{55}$")]
    pub code: Option<String>,
    /// An API token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(min_length = 62, max_length = 62, pattern = "^gpuaas_[A-Za-z0-9_-]{55}$")]
    pub token: Option<String>,
}

/// The user of the request, with the session if a browser sent it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CurrentSession {
    /// Name of the user, as in audit records.
    pub user: String,
    /// Role: `platform-admin`, `platform-operator`, `platform-auditor`, `project-admin`, `project-member`, `viewer` or `auditor`.
    #[schema(value_type = crate::schema::Role)]
    pub role: String,
    /// Id of the token whose rights the user has.
    pub token: String,
    /// Id of the user's project. Absent for platform roles.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
    /// Projects that the user sees: at most 1,000; `GET /api/v1/projects` lists more.
    pub projects: Vec<Project>,
    /// Permissions that the user has, by the names in `x-permission` of operations and in `docs/roles.md`.
    #[schema(value_type = Vec<crate::schema::Permission>)]
    pub permissions: Vec<String>,
    /// Version of the control plane.
    pub control_plane_version: String,
    /// Time of the control plane's clock.
    #[schema(format = DateTime)]
    pub at: String,
    /// Id of the session. This field and those that follow are absent if the request carried a token instead of a session's cookie.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// The proof with which the session began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<crate::schema::SessionProof>)]
    pub proof: Option<String>,
    /// Value that the header `x-gpuaas-csrf` of every request that is neither GET nor HEAD must have.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub csrf: Option<String>,
    /// Time at which the session began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// Time at which the session ends, whatever uses it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Time at which the session ends unless a later request uses it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub idle_expires_at: Option<String>,
}

/// A session of a browser.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BrowserSession {
    /// Id of the session.
    pub id: String,
    /// The proof with which the session began.
    #[schema(value_type = crate::schema::SessionProof)]
    pub proof: String,
    /// Time at which the session began.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of a request that used the session; up to a minute before the newest.
    #[schema(format = DateTime)]
    pub last_used_at: String,
    /// Time at which the session ends unless a later request uses it.
    #[schema(format = DateTime)]
    pub idle_expires_at: String,
    /// Time at which the session ends, whatever uses it.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// What the browser calls itself. Absent if it sent no name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_agent: Option<String>,
    /// True for the session of the request.
    pub current: bool,
}

/// A one-time sign-in link.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SignInLink {
    /// Address to open in a browser. The code is in its fragment, which no browser sends to a server.
    pub url: String,
    /// Time at which the link becomes void.
    #[schema(format = DateTime)]
    pub expires_at: String,
}
