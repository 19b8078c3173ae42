//! Operations of a control plane: started by a command and followed to their end.

use std::time::Duration;

use anyhow::{Context, ensure};
use gpuaas_api_types::{Operation, OperationDetail, Started};

use super::{
    control_plane::{ControlPlane, describe_output, parse_output},
    evidence,
};

/// Longest operation.
const OPERATION_MAX: Duration = Duration::from_secs(600);

impl ControlPlane {
    /// Starts an operation with a `gpuaas` command.
    pub(crate) fn begin(&self, arguments: &[&str]) -> anyhow::Result<Operation> {
        Ok(self.gpuaas::<Started>(arguments)?.operation)
    }

    /// Starts an operation and waits until it succeeds.
    pub(crate) fn run_operation(&self, arguments: &[&str]) -> anyhow::Result<OperationDetail> {
        self.wait_success(&self.begin(arguments)?)
    }

    /// Waits until an operation succeeds; fails if it ends otherwise.
    pub(crate) fn wait_success(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        self.wait_state("succeeded", operation)
    }

    /// Waits until an operation ends as `needs_attention`; fails if it ends otherwise.
    pub(crate) fn wait_needs_attention(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        self.wait_state("needs_attention", operation)
    }

    fn wait_state(&self, state: &str, operation: &Operation) -> anyhow::Result<OperationDetail> {
        let detail = self.wait_end(operation)?;
        ensure!(
            detail.operation.state == state,
            "the operation did not end as {state}: {}",
            evidence::describe_operation(self, &detail)
        );
        Ok(detail)
    }

    /// Waits for the end of an operation, whatever its result, across restarts of the control plane.
    fn wait_end(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        let longest = format!("{}s", OPERATION_MAX.as_secs());
        let words = ["operation", "watch", &operation.id, "--timeout", &longest];
        let output = self.run(&words)?;
        // An unsuccessful operation ends the command with 1 but is printed too.
        ensure!(matches!(output.status.code(), Some(0 | 1)), describe_output(&words, &output));
        parse_output(&words, &output).with_context(|| describe_output(&words, &output))
    }
}
