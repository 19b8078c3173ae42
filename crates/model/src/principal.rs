//! Who asks.

use crate::{Permission, ProjectId, Role, TokenId};

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
}

impl Principal {
    /// Whether it may do that at all; where, [`Principal::sees`] says.
    pub fn may(&self, permission: Permission) -> bool {
        self.role.allows(permission)
    }

    /// Whether objects of `project` exist for it at all.
    pub fn sees(&self, project: ProjectId) -> bool {
        self.role.is_of_platform() || self.project == Some(project)
    }
}
