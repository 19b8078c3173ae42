//! The authenticated caller of a command.

use gpuaas_model::{BrowserSessionId, Code, CorrelationId, Permission, Principal, ProjectId, Role, WorkloadId};
use gpuaas_planner::PlanDigest;
use gpuaas_store::{StoreError, Tx};

use crate::error::CommandError;

/// An authenticated caller with the correlation id of its request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated identity with its role and scope.
    pub principal: Principal,
    /// The request's correlation id, carried into rows, events, audit records, tasks and logs.
    pub correlation: CorrelationId,
    /// True if the caller wants to know what the command would do. Only commands that end with [`Caller::commit`] may get such a caller.
    pub is_dry_run: bool,
    /// The plan that the caller has seen: a command that plans an operation refuses any other one. Other commands ignore it.
    pub expected_plan: Option<PlanDigest>,
    /// The session of the browser that sent the request. Audit records of accepted commands contain it as `session`, so that its actions
    /// can be distinguished from others of its token.
    pub session: Option<BrowserSessionId>,
}

impl Caller {
    /// Returns the same caller, who asks for a dry run if `is_dry_run`.
    #[must_use]
    pub fn with_dry_run(self, is_dry_run: bool) -> Self {
        Self { is_dry_run, ..self }
    }

    /// Returns the same caller, who has seen the plan with this digest, if any.
    #[must_use]
    pub fn expecting(self, expected_plan: Option<PlanDigest>) -> Self {
        Self { expected_plan, ..self }
    }

    /// Commits the change, or discards it in a dry run: the command has made the same checks and returns the same rows.
    pub(crate) async fn commit(&self, tx: Tx) -> Result<(), StoreError> {
        if self.is_dry_run { Ok(()) } else { tx.commit().await }
    }

    /// Refuses with `not_found` an object in a project that the caller cannot see, so that it looks absent.
    pub fn require_visible(
        &self,
        project: ProjectId,
        what: &str,
        id: impl std::fmt::Display,
    ) -> Result<(), CommandError> {
        if self.principal.sees(project) { Ok(()) } else { Err(CommandError::not_found(what, id)) }
    }

    /// Refuses with `not_found` a workload, or an object of one, that the caller cannot see. `project` is the workload's.
    pub fn require_visible_workload(
        &self,
        project: ProjectId,
        workload: WorkloadId,
        what: &str,
        id: impl std::fmt::Display,
    ) -> Result<(), CommandError> {
        if self.principal.sees_workload(project, workload) { Ok(()) } else { Err(CommandError::not_found(what, id)) }
    }

    /// Refuses with `forbidden` a caller without the permission. Service accounts never have `TokensWrite`.
    pub fn require(&self, permission: Permission) -> Result<(), CommandError> {
        if self.principal.may(permission) {
            return Ok(());
        }
        let detail = format!("the role {} does not have the permission {permission}", self.principal.role);
        let roles = Role::ALL.iter().filter(|role| role.allows(permission)).map(ToString::to_string);
        let next = format!("these roles have it: {}", roles.collect::<Vec<_>>().join(", "));
        Err(CommandError::new(Code::Forbidden, detail).then(next))
    }
}
