//! Authenticated callers.

use crate::{Permission, ProjectId, Role, ServiceAccountId, TokenId};

/// An authenticated caller of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The token that authenticated the caller.
    pub token: TokenId,
    /// Display name, as shown in the audit.
    pub name: String,
    /// Role that decides the caller's permissions.
    pub role: Role,
    /// The caller's project; `None` for platform roles.
    pub project: Option<ProjectId>,
    /// The caller's service account; `None` for a person.
    pub service_account: Option<ServiceAccountId>,
}

impl Principal {
    /// Returns true if the caller has the permission in some project; [`Principal::sees`] checks the project. A service account never has
    /// permission to create tokens.
    pub fn may(&self, permission: Permission) -> bool {
        // A token created by a service account would outlive the account.
        let makes_credentials = permission == Permission::TokensWrite && self.service_account.is_some();
        self.role.allows(permission) && !makes_credentials
    }

    /// Returns true if objects of `project` are visible to the caller.
    pub fn sees(&self, project: ProjectId) -> bool {
        self.role.is_of_platform() || self.project == Some(project)
    }
}
