//! Who asked for a command, and under which correlation id all that follows is found.

use gpuaas_model::{CorrelationId, Principal, ProjectId};

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

    /// Refuses everybody but a platform admin.
    pub fn must_be_platform_admin(&self) -> Result<(), CommandError> {
        if self.principal.is_platform_admin() {
            Ok(())
        } else {
            Err(CommandError::new(gpuaas_model::Code::Forbidden, "this needs the role platform-admin")
                .then("ask an operator of the platform"))
        }
    }
}
