//! What each step does and what it interrupts, in words.

use gpuaas_app_rke2_tasks::Rke2Role;
use gpuaas_model::TaskType;
use gpuaas_planner::{MemberView, OperationRequest, RecordKind, StepAction, StepSpec, StepText, WorkloadView};

use crate::{
    call::CallName,
    operation::{Eviction, Operation},
    render::{kills_all, role},
};

/// Describes a step.
pub(crate) fn describe(step: &StepSpec, request: &OperationRequest, workload: &WorkloadView) -> StepText {
    let member = step.member.and_then(|id| workload.member(id));
    match (&step.action, member) {
        (StepAction::NodeTask { task, .. }, Some(member)) => of_task(*task, member, request, workload),
        // A task needs a member; the plan's check refuses it.
        (StepAction::NodeTask { task, .. }, None) => does(format!("run {task}")),
        (StepAction::ClusterCall { call }, member) => match CallName::parse(call) {
            Some(call) => of_call(call, member, request),
            None => does(format!("make the cluster call {call}")),
        },
        (StepAction::Record { record: RecordKind::ConfirmPlacement }, _) => {
            does("check again that every allocation can be used")
        }
        (StepAction::Record { record: RecordKind::Milestone }, _) => {
            does(format!("record in the database: {}", step.key))
        }
        (StepAction::Record { record: RecordKind::AwaitNode }, _) => does("wait until the node is connected again"),
        (StepAction::Record { record: RecordKind::GiveUp }, member) => {
            let node = member.map_or("its node", |member| member.machine.name.as_str());
            let interrupts = format!(
                "what is left on {node} stays, and may still run; {node} accepts no deployment until it is clean"
            );
            interrupting("remove the member without proof", interrupts)
        }
    }
}

fn does(what: impl Into<String>) -> StepText {
    StepText { does: what.into(), interrupts: None }
}

fn interrupting(what: impl Into<String>, interrupts: impl Into<String>) -> StepText {
    StepText { does: what.into(), interrupts: Some(interrupts.into()) }
}

fn of_task(task: TaskType, member: &MemberView, request: &OperationRequest, workload: &WorkloadView) -> StepText {
    use TaskType as T;
    let service = service(role(member));
    let (version, node) = (&workload.release.version, &member.machine.name);
    match task {
        T::Preflight => does("check whether RKE2 can run"),
        T::ArtifactFetch => does(format!("fetch the release {version} and verify it")),
        T::Rke2Install => does(format!("install RKE2 {version}, as far as it is missing")),
        T::Rke2Configure => does("write RKE2's configuration and token files, where they deviate"),
        T::Rke2Enable => does(format!("let {service} start at boot")),
        T::Rke2Start => does(format!("start {service} and wait until it is ready")),
        T::Rke2Stop if kills_all(request.kind) => {
            interrupting(format!("stop {service} and end its containers"), stopped(member))
        }
        T::Rke2Stop => {
            interrupting(format!("stop {service}; its containers run until RKE2 is uninstalled"), unattended(member))
        }
        T::Rke2KubeconfigRead => does("seal the administrator's kubeconfig in the control plane's store"),
        T::Rke2Uninstall => interrupting(
            "end RKE2's containers and uninstall it",
            format!("everything of RKE2 on {node} ends, and its data is deleted"),
        ),
        T::Residue => does("check what is left of RKE2"),
        T::Noop | T::Inspect | T::Fix | T::Rke2Observe => does(format!("run {task}")),
    }
}

/// Returns what a stop that ends all containers interrupts.
fn stopped(member: &MemberView) -> String {
    let node = &member.machine.name;
    match role(member) {
        Rke2Role::Server => format!("the Kubernetes API does not answer, and the pods on {node} end"),
        Rke2Role::Agent => format!("the pods on {node} end"),
    }
}

/// Returns what a stop that leaves containers running interrupts.
fn unattended(member: &MemberView) -> String {
    let node = &member.machine.name;
    match role(member) {
        Rke2Role::Server => format!("the cluster is no longer managed, and the pods on {node} are not restarted"),
        Rke2Role::Agent => format!("the pods that are still on {node} are not restarted"),
    }
}

fn of_call(call: CallName, member: Option<&MemberView>, request: &OperationRequest) -> StepText {
    let node = member.map_or("of the member", |member| member.machine.name.as_str());
    match call {
        CallName::ApiReady => does("wait until the Kubernetes API is ready"),
        CallName::KubeNodeReady => does(format!("wait until the KubeNode {node} is ready")),
        CallName::KubeNodes => does("list the KubeNodes"),
        CallName::CordonKubeNode => {
            interrupting(format!("cordon the KubeNode {node}"), format!("{node} takes no new pods"))
        }
        CallName::DrainKubeNode => drain(node, request),
        CallName::UncordonKubeNode => does(format!("let the KubeNode {node} take pods again")),
        CallName::DeleteKubeNode => {
            let interrupts = format!("pods that are still on {node} are deleted");
            interrupting(format!("delete the KubeNode {node} from the cluster"), interrupts)
        }
        CallName::ForgetNodePassword => does(format!("forget the password of {node}, so that it can join again")),
        CallName::LabelKubeNode => does(format!("set the labels of the KubeNode {node}, where they deviate")),
        CallName::DeliverAccess => does("prove that credentials can be delivered, and remove the proof"),
    }
}

fn drain(node: &str, request: &OperationRequest) -> StepText {
    // The request was checked before the plan was made.
    let eviction = request.parse::<Operation>().map_or_else(|_| Eviction::default(), |operation| operation.eviction());
    let mut interrupts = format!("the pods on {node} are evicted; their controllers start them elsewhere");
    if eviction.force {
        interrupts.push_str("; pods without a controller end for good");
    }
    if eviction.delete_empty_dir_data {
        interrupts.push_str("; data in emptyDir volumes is lost");
    }
    let limit = format!("evict the pods of {node} within {} s; disruption budgets hold", eviction.timeout_seconds);
    interrupting(limit, interrupts)
}

/// Returns the unit of a role as people name it.
fn service(role: Rke2Role) -> &'static str {
    match role {
        Rke2Role::Server => "rke2-server",
        Rke2Role::Agent => "rke2-agent",
    }
}

#[cfg(test)]
mod tests;
