//! Converts errors of Kubernetes to task failures: a stable code and a sentence with the observed facts.

use gpuaas_kube::KubeError;
use gpuaas_model::{Code, cut};
use gpuaas_planner::MachineView;
use gpuaas_wire::task::TaskFailure;

/// Returns the failure of a call to the cluster whose server runs on `machine`.
pub(crate) fn of(error: KubeError, machine: &MachineView) -> TaskFailure {
    let code = match &error {
        KubeError::NotReady { .. } => Code::ClusterNotReady,
        KubeError::NoKubeNode(_) => Code::KubeNodeMissing,
        KubeError::DrainRefused(_) => Code::DrainRefused,
        KubeError::DrainBlocked(_) => Code::DrainBlocked,
        KubeError::Refused
        | KubeError::Unreachable(_)
        | KubeError::Interrupted(_)
        | KubeError::TimedOut { .. }
        | KubeError::Untrusted(_)
        | KubeError::Unauthorized
        | KubeError::Unreadable(_)
        | KubeError::TooLong { .. }
        | KubeError::Kubeconfig(_) => Code::ClusterUnreachable,
        KubeError::Busy { .. } => Code::RateLimited,
        // 5xx and 429: the apiserver answers, but cannot serve the request now.
        KubeError::Answered { status: 429 | 500.., .. } => Code::ClusterNotReady,
        KubeError::Answered { .. } | KubeError::Forbidden(_) | KubeError::Conflict(_) | KubeError::NotFound(_) => {
            Code::StateConflict
        }
        KubeError::Refusal(_) => Code::FieldInvalid,
    };
    // These are about the cluster's pods and KubeNodes: the address of its apiserver would distract.
    let is_about_objects =
        matches!(error, KubeError::NoKubeNode(_) | KubeError::DrainRefused(_) | KubeError::DrainBlocked(_));
    let message = if is_about_objects {
        error.to_string()
    } else {
        format!("{}:6443 on {}: {error}", machine.address, machine.name)
    };
    TaskFailure::new(code, cut(&message, TaskFailure::MESSAGE_BYTES_MAX))
}
