//! Operations of a control plane: begun by a command, followed to their end.

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
    /// Begins an operation by a command of `gpuaas`.
    pub(crate) fn begin(&self, words: &[&str]) -> anyhow::Result<Operation> {
        Ok(self.gpuaas::<Started>(words)?.operation)
    }

    /// Carries one out that must succeed.
    pub(crate) fn succeeded(&self, words: &[&str]) -> anyhow::Result<OperationDetail> {
        self.succeeds(&self.begin(words)?)
    }

    /// Follows one to its end, which must be a good one.
    pub(crate) fn succeeds(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        self.ends_as("succeeded", operation)
    }

    /// Follows one to its end, which must be one that a person has to see to.
    pub(crate) fn needs_attention(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        self.ends_as("needs_attention", operation)
    }

    fn ends_as(&self, state: &str, operation: &Operation) -> anyhow::Result<OperationDetail> {
        let detail = self.ended(operation)?;
        ensure!(detail.operation.state == state, "it should be {state}: {}", evidence::of_operation(self, &detail));
        Ok(detail)
    }

    /// Follows one to its end, however that is, also past lives of the control plane.
    fn ended(&self, operation: &Operation) -> anyhow::Result<OperationDetail> {
        let longest = format!("{}s", OPERATION_MAX.as_secs());
        let words = ["operation", "watch", &operation.id, "--timeout", &longest];
        let output = self.run(&words)?;
        // One that did not succeed ends the command with 1, and is printed all the same.
        ensure!(matches!(output.status.code(), Some(0 | 1)), told(&words, &output));
        printed(&words, &output).with_context(|| told(&words, &output))
    }
}
