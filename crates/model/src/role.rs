//! What a principal may do: roles, permissions, and the one table that joins them.

use crate::state::text_enum;

text_enum! {
    /// What a principal is.
    Role {
        /// Everything, on the platform and in every project.
        PlatformAdmin = "platform-admin",
        /// Runs machines, allocations and artifacts; sees every project and ends or resumes what runs there; takes no credential.
        PlatformOperator = "platform-operator",
        /// Reads the control plane's metrics and nothing else: for scrapers.
        PlatformMetrics = "platform-metrics",
        /// Everything inside one project.
        ProjectAdmin = "project-admin",
        /// Deploys and uses what is deployed, inside one project.
        ProjectMember = "project-member",
        /// Looks, inside one project.
        Viewer = "viewer",
    }
}

text_enum! {
    /// One kind of thing to do. Every operation of the API needs exactly one.
    Permission {
        /// See what the caller's projects hold, and who the caller is.
        ProjectRead = "project.read",
        /// Read journals of a workload's members.
        LogsRead = "logs.read",
        /// Deploy, grow and decommission workloads.
        WorkloadsWrite = "workloads.write",
        /// Cancel or resume operations.
        OperationsControl = "operations.control",
        /// Take a kubeconfig that only looks.
        AccessView = "access.view",
        /// Take a kubeconfig of any role of the cluster, and withdraw kubeconfigs.
        AccessTake = "access.take",
        /// Take a break-glass kubeconfig.
        AccessBreakGlass = "access.break_glass",
        /// Read the audit of the caller's projects.
        AuditRead = "audit.read",
        /// Read the archived history of all projects.
        ArchivesRead = "archives.read",
        /// Make and withdraw tokens of the caller's own project.
        TokensWrite = "tokens.write",
        /// See machines and the control plane's own processes.
        PlatformRead = "platform.read",
        /// Read the control plane's metrics.
        MetricsRead = "metrics.read",
        /// Register, enroll, ping and reset machines.
        NodesWrite = "nodes.write",
        /// Give machines to projects and take them back.
        AllocationsWrite = "allocations.write",
        /// Import releases.
        ArtifactsWrite = "artifacts.write",
        /// Change the keys that sign tasks.
        KeysWrite = "keys.write",
        /// Make projects.
        ProjectsWrite = "projects.write",
    }
}

impl Role {
    /// Whether it acts for the platform as a whole, and so belongs to no project.
    pub const fn is_of_platform(self) -> bool {
        match self {
            Self::PlatformAdmin | Self::PlatformOperator | Self::PlatformMetrics => true,
            Self::ProjectAdmin | Self::ProjectMember | Self::Viewer => false,
        }
    }

    /// The table of rights. A role of a project has them inside it alone.
    pub const fn allows(self, permission: Permission) -> bool {
        use Permission as P;
        match self {
            Self::PlatformAdmin => true,
            Self::PlatformOperator => match permission {
                P::ProjectRead
                | P::LogsRead
                | P::OperationsControl
                | P::AuditRead
                | P::ArchivesRead
                | P::PlatformRead
                | P::MetricsRead
                | P::NodesWrite
                | P::AllocationsWrite
                | P::ArtifactsWrite => true,
                P::WorkloadsWrite
                | P::AccessView
                | P::AccessTake
                | P::AccessBreakGlass
                | P::TokensWrite
                | P::KeysWrite
                | P::ProjectsWrite => false,
            },
            Self::PlatformMetrics => matches!(permission, P::MetricsRead),
            Self::ProjectAdmin => match permission {
                P::AccessBreakGlass | P::TokensWrite => true,
                _ => Self::ProjectMember.allows(permission),
            },
            Self::ProjectMember => match permission {
                P::WorkloadsWrite | P::OperationsControl | P::AccessTake | P::AuditRead => true,
                _ => Self::Viewer.allows(permission),
            },
            Self::Viewer => matches!(permission, P::ProjectRead | P::LogsRead | P::AccessView),
        }
    }

    /// Whether a holder of this role may make a token of another: never one that can do more.
    pub fn may_grant(self, other: Self) -> bool {
        self.allows(Permission::TokensWrite)
            && (self == Self::PlatformAdmin || !other.is_of_platform())
            && Permission::ALL.iter().all(|permission| self.allows(*permission) || !other.allows(*permission))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_grants_more_than_he_has() {
        for role in Role::ALL {
            for other in Role::ALL {
                let granted = role.may_grant(*other);
                let expected = match role {
                    Role::PlatformAdmin => true,
                    Role::ProjectAdmin => !other.is_of_platform(),
                    Role::PlatformOperator | Role::PlatformMetrics | Role::ProjectMember | Role::Viewer => false,
                };
                assert_eq!(granted, expected, "{role} grants {other}");
            }
        }
    }

    #[test]
    fn in_a_project_each_role_can_do_what_the_one_below_can() {
        for permission in Permission::ALL {
            let ladder = [Role::Viewer, Role::ProjectMember, Role::ProjectAdmin, Role::PlatformAdmin];
            assert!(ladder.map(|role| role.allows(*permission)).is_sorted(), "{permission}");
        }
    }
}
