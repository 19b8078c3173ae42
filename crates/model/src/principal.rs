//! Authenticated callers.

use crate::{Permission, ProjectId, Role, ServiceAccountId, TokenId, WorkloadId};

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
    /// The only workload that exists for the caller; `None` unless its role acts for one ([`Role::is_of_workload`]).
    pub workload: Option<WorkloadId>,
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

    /// Returns true if this workload of `project`, with its members, operations and events, is visible to the caller.
    pub fn sees_workload(&self, project: ProjectId, workload: WorkloadId) -> bool {
        self.sees(project) && (!self.role.is_of_workload() || self.workload == Some(workload))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn controller_sees_its_workload_alone_and_none_without_one() {
        let [ours, theirs] = [1, 2].map(|number| ProjectId::from_uuid(Uuid::from_u128(number)));
        let [own, other] = [3, 4].map(|number| WorkloadId::from_uuid(Uuid::from_u128(number)));
        let caller = |role, workload| Principal {
            token: TokenId::from_uuid(Uuid::from_u128(5)),
            name: "service-account/watcher".to_owned(),
            role,
            project: Some(ours),
            service_account: None,
            workload,
        };
        let controller = caller(Role::AppController, Some(own));
        assert!(controller.sees_workload(ours, own));
        assert!(!controller.sees_workload(ours, other) && !controller.sees_workload(theirs, own));
        assert!(!caller(Role::AppController, None).sees_workload(ours, own), "without a workload it sees none");
        assert!(caller(Role::Viewer, None).sees_workload(ours, other));
    }
}
