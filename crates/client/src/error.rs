//! Errors of API calls.

use gpuaas_api_types::Problem;
use gpuaas_model::{Code, ExitStatus};

/// The error of an API call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server responded with a problem document.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// The connection failed.
    #[error("the control plane at {url} cannot be reached: {reason}")]
    Unreachable {
        /// URL of the control plane.
        url: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {url} {reason}")]
    Untrusted {
        /// URL of the control plane.
        url: String,
        /// Defect, as the end of a sentence.
        reason: &'static str,
    },
    /// The response is invalid.
    #[error("the control plane sent an invalid response: {0}")]
    InvalidResponse(String),
    /// A stream was interrupted.
    #[error("the connection was interrupted: {0}")]
    Interrupted(String),
    /// The URL, the token or the authority's file is invalid.
    #[error("{0}")]
    InvalidSetting(String),
}

impl ClientError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> Code {
        match self {
            Self::Problem(problem) => problem.code.parse().unwrap_or(Code::Internal),
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::Interrupted(_) => Code::ServerUnreachable,
            Self::InvalidResponse(_) => Code::Internal,
            Self::InvalidSetting(_) => Code::FieldInvalid,
        }
    }

    /// Returns the exit status of a command that fails with this error.
    pub fn exit(&self) -> ExitStatus {
        self.code().exit()
    }
}
