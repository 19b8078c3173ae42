//! Operations of a control plane: started by a command and followed to their end.

use std::time::Duration;

use anyhow::{Context, ensure};
use gpuaas_api_types::{Operation, OperationDetail, Started};

use super::{
    control_plane::{ControlPlane, printed, told},
    evidence,
};

/// Longest operation.
const OPERATION_MAX: Duration = Duration::from_secs(600);

impl ControlPlane {
    /// Starts an operation with a `gpuaas` command.
    pub(crate) fn begin(&self, words: &[&str]) -> anyhow::Result<Operation> {
        Ok(self.gpuaas::<Started>(words)?.operation)
    }

    /// Starts an operation and waits until it succeeds.
    pub(crate) fn succeeded(&self, words: &[&str]) -> anyhow::Result<OperationDetail> {
        self.succeeds(&self.begin(words)?)
    }

    /// Waits until an operation succeeds; fails if it ends otherwise.
    pub(crate) fn succeeds(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        self.ends_as("succeeded", operation)
    }

    /// Waits until an operation ends as `needs_attention`; fails if it ends otherwise.
    pub(crate) fn needs_attention(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        self.ends_as("needs_attention", operation)
    }

    fn ends_as(&self, state: &str, operation: &Operation) -> anyhow::Result<OperationDetail> {
        let detail = self.ended(operation)?;
        ensure!(detail.operation.state == state, "it should be {state}: {}", evidence::of_operation(self, &detail));
        Ok(detail)
    }

    /// Waits for the end of an operation, whatever its result, across restarts of the control plane.
    fn ended(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        let longest = format!("{}s", OPERATION_MAX.as_secs());
        let words = ["operation", "watch", &operation.id, "--timeout", &longest];
        let output = self.run(&words)?;
        // An unsuccessful operation ends the command with 1 but is printed too.
        ensure!(matches!(output.status.code(), Some(0 | 1)), told(&words, &output));
        printed(&words, &output).with_context(|| told(&words, &output))
    }
}
