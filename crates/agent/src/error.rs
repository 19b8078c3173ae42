//! Why the agent ends.

use gpuaas_host::HostError;

/// Why the agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Neither a sandbox nor a supported machine.
    #[error("this is no sandbox node, and this version runs on nothing else")]
    NoHost,
    /// Not enrolled and no string at hand.
    #[error("this node is not enrolled: put an enrollment string into {0}")]
    NotEnrolled(String),
    /// The string is none.
    #[error(transparent)]
    Enrollment(#[from] gpuaas_trust::EnrollmentError),
    /// The control plane said no.
    #[error("the control plane refused the enrollment: {0}")]
    Refused(String),
    /// The control plane cannot be reached, or is not who the string pins.
    #[error("the control plane cannot be reached: {0}")]
    Unreachable(String),
    /// The host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// What the agent keeps is damaged.
    #[error("the agent's own state is damaged: {0}")]
    State(String),
}
