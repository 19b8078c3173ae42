//! Who asks.

use crate::{ProjectId, TokenId, state::text_enum};

text_enum! {
    /// What a principal may do. Coarse on purpose for now: two roles, checked on every route.
    Role {
        /// Everything, on the platform and in every project.
        PlatformAdmin = "platform-admin",
        /// Everything inside one project.
        ProjectMember = "project-member",
    }
}

/// An authenticated caller of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The token that proved it.
    pub token: TokenId,
    /// Its display name, as the audit shows it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The project it belongs to; `None` for a platform admin.
    pub project: Option<ProjectId>,
}

impl Principal {
    /// Whether it acts for the platform as a whole.
    pub fn is_platform_admin(&self) -> bool {
        self.role == Role::PlatformAdmin
    }

    /// Whether objects of `project` exist for it at all.
    pub fn sees(&self, project: ProjectId) -> bool {
        self.is_platform_admin() || self.project == Some(project)
    }
}
