//! Why a call did not return what it should.

use gpuaas_api_types::Problem;
use gpuaas_model::{Code, ExitStatus};

/// Why a call did not return what it should.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server explained why.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// Nobody answers there, or not who should.
    #[error("the control plane at {url} cannot be reached: {reason}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
    /// The answer makes no sense.
    #[error("the control plane's answer makes no sense: {0}")]
    Answer(String),
    /// A stream ended in its middle.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The URL, the token or the authority's file cannot be used.
    #[error("{0}")]
    Setting(String),
}

impl ClientError {
    /// Its stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Problem(problem) => problem.code.parse().unwrap_or(Code::Internal),
            Self::Unreachable { .. } | Self::Broken(_) => Code::ServerUnreachable,
            Self::Answer(_) => Code::Internal,
            Self::Setting(_) => Code::FieldInvalid,
        }
    }

    /// The exit status of a command that ends with it.
    pub fn exit(&self) -> ExitStatus {
        match self {
            Self::Setting(_) => ExitStatus::Usage,
            Self::Problem(_) | Self::Unreachable { .. } | Self::Broken(_) | Self::Answer(_) => self.code().exit(),
        }
    }
}
