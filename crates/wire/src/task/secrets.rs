//! Access of a task's node to secrets.

use gpuaas_model::SecretId;
use serde_json::Value;

use super::TaskSpec;

/// The secrets that a task names. The node cannot read what it deposits and cannot replace what it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSecrets {
    /// Secrets that the node may read.
    pub reads: Vec<SecretId>,
    /// Secrets that the node must deposit.
    pub deposits: Vec<SecretId>,
}

/// Returns the secrets that a task with these parameters names; none if the parameters do not match the task type.
pub(super) fn named_secrets<T: TaskSpec>(params: &Value) -> NamedSecrets {
    let task = serde_json::from_value::<T>(params.clone());
    task.map(|task| NamedSecrets { reads: task.reads(), deposits: task.deposits() }).unwrap_or_default()
}
