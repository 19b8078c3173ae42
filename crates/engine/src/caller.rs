//! Who asked for a command, and under which correlation id all that follows is found.

use gpuaas_model::{Code, CorrelationId, Permission, Principal, ProjectId};

use crate::error::CommandError;

/// An authenticated caller with the correlation id of its request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    /// Carried into rows, events, audit, tasks and logs.
    pub correlation: CorrelationId,
}

impl Caller {
    /// Refuses with `not_found` what lies in a project that the caller does not see: it looks absent.
    pub fn must_see(&self, project: ProjectId, what: &str, id: impl std::fmt::Display) -> Result<(), CommandError> {
        if self.principal.sees(project) { Ok(()) } else { Err(CommandError::not_found(what, id)) }
    }

    /// Refuses whoever has not that right anywhere.
    pub fn must(&self, permission: Permission) -> Result<(), CommandError> {
        if self.principal.may(permission) {
            return Ok(());
        }
        let detail = format!("the role {} does not include {permission}", self.principal.role);
        Err(CommandError::new(Code::Forbidden, detail).then("see docs/roles.md, and ask whoever gave you the token"))
    }
}
