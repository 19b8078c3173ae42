//! The authenticated caller of a command.

use gpuaas_model::{Code, CorrelationId, Permission, Principal, ProjectId};

use crate::error::CommandError;

/// An authenticated caller with the correlation id of its request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated identity with its role and scope.
    pub principal: Principal,
    /// The request's correlation id, carried into rows, events, audit records, tasks and logs.
    pub correlation: CorrelationId,
}

impl Caller {
    /// Refuses with `not_found` an object in a project that the caller cannot see, so that it looks absent.
    pub fn require_visible(
        &self,
        project: ProjectId,
        what: &str,
        id: impl std::fmt::Display,
    ) -> Result<(), CommandError> {
        if self.principal.sees(project) { Ok(()) } else { Err(CommandError::not_found(what, id)) }
    }

    /// Refuses with `forbidden` a caller without the permission. Service accounts never have `TokensWrite`.
    pub fn require(&self, permission: Permission) -> Result<(), CommandError> {
        if self.principal.may(permission) {
            return Ok(());
        }
        let detail = format!("the role {} does not include {permission}", self.principal.role);
        Err(CommandError::new(Code::Forbidden, detail).then("see docs/roles.md, and ask the issuer of your token"))
    }
}
