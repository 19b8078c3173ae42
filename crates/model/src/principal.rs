//! Who asks.

use crate::{Permission, ProjectId, Role, ServiceAccountId, TokenId};

/// An authenticated caller of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The token that proved it.
    pub token: TokenId,
    /// Its display name, as the audit shows it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The project it belongs to; `None` for a role of the platform.
    pub project: Option<ProjectId>,
    /// The service account that it is; `None` for a person.
    pub service_account: Option<ServiceAccountId>,
}

impl Principal {
    /// Whether it may do that at all, which for a service account never includes making tokens; where, [`Principal::sees`] says.
    pub fn may(&self, permission: Permission) -> bool {
        // What a program made would outlive its account.
        let makes_credentials = permission == Permission::TokensWrite && self.service_account.is_some();
        self.role.allows(permission) && !makes_credentials
    }

    /// Whether objects of `project` exist for it at all.
    pub fn sees(&self, project: ProjectId) -> bool {
        self.role.is_of_platform() || self.project == Some(project)
    }
}
