//! The program `rke2` as an observation finds it.

use camino::Utf8Path;
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::HostError;
use gpuaas_wire::task::TaskFailure;

use crate::install::version_line;

/// Path of the program.
pub(crate) const PROGRAM: &str = "/usr/local/bin/rke2";

/// The program `rke2`.
pub(crate) enum Program {
    /// It runs and prints this version.
    Runs(String),
    /// It is missing or does not run, for this reason.
    Fails(String),
}

impl Program {
    /// Runs `rke2 --version`. A program that does not run is an observation, not a failure of the task.
    pub(crate) async fn look(context: &Context) -> Result<Self, TaskFailure> {
        match context.host.files().exists(Utf8Path::new(PROGRAM)).await {
            Ok(true) => Ok(version_line(context).await.map_or_else(|failure| Self::Fails(failure.message), Self::Runs)),
            Ok(false) => Ok(Self::Fails(format!("{PROGRAM} does not exist"))),
            Err(error @ HostError::UnsafePath { .. }) => Ok(Self::Fails(error.to_string())),
            Err(error) => Err(host_failed(error)),
        }
    }

    /// Returns the first line of the version of a program that runs.
    pub(crate) fn version_line(self) -> Option<String> {
        match self {
            Self::Runs(version_line) => Some(version_line),
            Self::Fails(_) => None,
        }
    }
}
