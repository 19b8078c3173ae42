//! Why the agent ends.

use gpuaas_host::HostError;
use gpuaas_model::Code;

/// Why the agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Not enrolled and no string at hand.
    #[error("this node is not enrolled: put an enrollment string into {0}")]
    NotEnrolled(String),
    /// The string is none.
    #[error(transparent)]
    Enrollment(#[from] gpuaas_trust::EnrollmentError),
    /// The control plane said no.
    #[error("the control plane refused: {0}")]
    Refused(String),
    /// The control plane cannot be reached, or is not who the string pins.
    #[error("the control plane cannot be reached: {0}")]
    Unreachable(String),
    /// By the node's clock the control plane's certificate is not in its time.
    #[error(
        "this node's clock is at least {seconds} s {way}, by the control plane's certificate ({})",
        Code::ClockSkewed
    )]
    Skewed {
        /// By how much at least.
        seconds: u64,
        /// Ahead or behind.
        way: &'static str,
    },
    /// The host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// What the agent keeps is damaged.
    #[error("the agent's own state is damaged: {0}")]
    State(String),
}

impl AgentError {
    /// The stable code of a task that is refused for it.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Host(error) if error.is_full() => Code::DiskFull,
            Self::NotEnrolled(_)
            | Self::Enrollment(_)
            | Self::Refused(_)
            | Self::Unreachable(_)
            | Self::Skewed { .. }
            | Self::Host(_)
            | Self::State(_) => Code::HostFailed,
        }
    }
}
