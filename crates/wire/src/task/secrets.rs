//! Access of a task's node to secrets.

use gpuaas_model::{SecretId, TaskType};
use serde_json::Value;

use super::{
    ArtifactFetch, Fix, Inspect, Noop, Preflight, Residue, Rke2Configure, Rke2Install, Rke2KubeconfigRead, Rke2Observe,
    Rke2Start, Rke2Stop, Rke2Uninstall, TaskSpec,
};

/// The secrets that a task names. The node cannot read what it deposits and cannot replace what it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSecrets {
    /// Secrets that the node may read.
    pub reads: Vec<SecretId>,
    /// Secrets that the node must deposit.
    pub deposits: Vec<SecretId>,
}

/// Returns the secrets that a task with these parameters names; none if the parameters do not match the task type.
pub fn named_secrets(task: TaskType, params: &Value) -> NamedSecrets {
    match task {
        TaskType::Noop => named::<Noop>(params),
        TaskType::Inspect => named::<Inspect>(params),
        TaskType::Preflight => named::<Preflight>(params),
        TaskType::ArtifactFetch => named::<ArtifactFetch>(params),
        TaskType::Rke2Install => named::<Rke2Install>(params),
        TaskType::Rke2Configure => named::<Rke2Configure>(params),
        TaskType::Rke2Start => named::<Rke2Start>(params),
        TaskType::Rke2Stop => named::<Rke2Stop>(params),
        TaskType::Rke2Observe => named::<Rke2Observe>(params),
        TaskType::Rke2KubeconfigRead => named::<Rke2KubeconfigRead>(params),
        TaskType::Rke2Uninstall => named::<Rke2Uninstall>(params),
        TaskType::Residue => named::<Residue>(params),
        TaskType::Fix => named::<Fix>(params),
    }
}

fn named<T: TaskSpec>(params: &Value) -> NamedSecrets {
    let task = serde_json::from_value::<T>(params.clone());
    task.map(|task| NamedSecrets { reads: task.reads(), deposits: task.deposits() }).unwrap_or_default()
}

#[cfg(test)]
mod hostile_tests {
    use serde_json::json;

    use super::*;

    const ONE: &str = "0198c0de-7a3b-7c11-9b54-0242ac120001";
    const TWO: &str = "0198c0de-7a3b-7c11-9b54-0242ac120002";

    fn ids(texts: &[&str]) -> Vec<SecretId> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn secrets_to_read_and_to_deposit_are_separate() {
        let secret = |id: &str| json!({ "secret_id": id, "sha256": "0".repeat(64) });
        let configure = json!({ "role": "server", "config": "", "token": secret(ONE), "agent_token": secret(TWO) });
        let named = named_secrets(TaskType::Rke2Configure, &configure);
        assert_eq!(named, NamedSecrets { reads: ids(&[ONE, TWO]), deposits: Vec::new() });
        let read = json!({ "secret_id": ONE });
        let named = named_secrets(TaskType::Rke2KubeconfigRead, &read);
        assert_eq!(named, NamedSecrets { reads: Vec::new(), deposits: ids(&[ONE]) });
    }

    #[test]
    fn parameters_of_another_type_name_no_secret() {
        let read = json!({ "secret_id": ONE });
        for &task in TaskType::ALL {
            let named = named_secrets(task, &read);
            assert_eq!(named != NamedSecrets::default(), task == TaskType::Rke2KubeconfigRead, "{task}");
        }
    }
}
