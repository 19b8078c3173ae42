//! Renders the parameters of each task and cluster call from the workload's state when the attempt starts.

use gpuaas_app_rke2_tasks::{
    Rke2Configure, Rke2Enable, Rke2Install, Rke2KubeconfigRead, Rke2Role, Rke2Start, Rke2Stop,
};
use gpuaas_bugs::{self as bugs, Bug};
use gpuaas_model::{OperationKind, Timestamp};
use gpuaas_planner::{
    ArtifactView, MemberView, OperationRequest, RenderError, SecretView, StepAction, StepSpec, WorkloadView,
};
use gpuaas_wire::task::{ArtifactFetch, ArtifactRef, SecretRef};
use serde::Serialize;
use serde_json::Value;

use crate::{
    call::{CallName, Context},
    config::{self, Config},
    faults,
    manifest::{ARCHIVE, IMAGES},
    names,
    operation::Operation,
    requirements,
    size::{InstallProgress, ReleaseSize},
};

/// Restarts of the unit above which it counts as failing: its program then ended three times.
const RESTARTS_MAX: u32 = 2;

/// Returns the parameters of one attempt.
pub(crate) fn render(
    step: &StepSpec,
    request: &OperationRequest,
    workload: &WorkloadView,
) -> Result<Value, RenderError> {
    let missing = |missing: &str| RenderError::Missing { step: step.key.clone(), missing: missing.to_owned() };
    let member = step.member.and_then(|id| workload.member(id));
    let task = match &step.action {
        StepAction::NodeTask { task, .. } => task,
        StepAction::ClusterCall { call } => {
            let unknown = || RenderError::UnknownCall { step: step.key.clone(), call: call.clone() };
            let name = CallName::parse(call).ok_or_else(unknown)?;
            let operation: Operation = request.parse().map_err(|_| missing("valid parameters"))?;
            let context = Context {
                kube_node: member.map(|member| &member.machine.name),
                uid: member
                    .and_then(|member| workload.facts.get(&names::kube_node_uid(&member.name)))
                    .and_then(Value::as_str),
                started_at: member.and_then(|member| started_at(member, workload)),
                is_removal: matches!(request.kind, OperationKind::RemoveMember | OperationKind::ReplaceMember),
                eviction: operation.eviction(),
                labels: Config::read(&workload.config).map_err(|_| missing("valid settings"))?.into_node_labels(),
            };
            return Ok(name.with(context).ok_or_else(|| missing("its member"))?.parameters());
        }
        StepAction::Record { .. } => return Ok(Value::Null),
    };
    let member = member.ok_or_else(|| missing("its member"))?;
    let role = role(member);
    use gpuaas_model::TaskType as T;
    match task {
        T::Preflight => {
            let free_bytes_min = ReleaseSize::of(&workload.release).free_bytes_min(install_progress(member, workload));
            value(&requirements::preflight(role, member.touched, free_bytes_min))
        }
        T::ArtifactFetch => {
            let artifacts = [ARCHIVE, IMAGES].map(|name| artifact(workload, name).ok_or_else(|| missing(name)));
            value(&ArtifactFetch { artifacts: artifacts.into_iter().collect::<Result<_, _>>()? })
        }
        T::Rke2Install => value(&Rke2Install {
            version: workload.release.version.clone(),
            archive: artifact(workload, ARCHIVE).ok_or_else(|| missing(ARCHIVE))?,
            images: vec![artifact(workload, IMAGES).ok_or_else(|| missing(IMAGES))?],
        }),
        T::Rke2Configure => value(&configure(member, workload).map_err(missing)?),
        T::Rke2Start => value(&Rke2Start {
            role,
            give_up_on: faults::give_up_on(),
            restarts_max: RESTARTS_MAX,
            exceptions: faults::exceptions(),
        }),
        T::Rke2Stop => value(&Rke2Stop { role, kill_all: kills_all(request.kind) }),
        T::Rke2Enable => value(&Rke2Enable { role }),
        T::Rke2KubeconfigRead => {
            let secret =
                workload.secrets.get(names::ADMIN_KUBECONFIG).ok_or_else(|| missing(names::ADMIN_KUBECONFIG))?;
            value(&Rke2KubeconfigRead { secret_id: secret.id })
        }
        T::Rke2Uninstall => value(&requirements::uninstall(is_installed(member, workload))),
        T::Residue => value(&requirements::residue(is_installed(member, workload))),
        T::Noop | T::Inspect | T::Fix | T::Rke2Observe => Err(missing("a use for the task")),
    }
}

/// Returns the time at which a member's node started RKE2 last, by the node's clock.
fn started_at(member: &MemberView, workload: &WorkloadView) -> Option<Timestamp> {
    let known = workload.facts.get(&names::started(&member.name)).and_then(Value::as_i64);
    known.filter(|_| !bugs::on(Bug::StaleReadyAccepted)).map(Timestamp::from_millis)
}

/// Returns the files of a member, or the name of the data that is missing for them.
pub(crate) fn configure(member: &MemberView, workload: &WorkloadView) -> Result<Rke2Configure, &'static str> {
    let config = Config::read(&workload.config).map_err(|_| "valid settings")?;
    let secret = |name: &'static str| workload.secrets.get(name).map(reference).ok_or(name);
    let role = role(member);
    Ok(match role {
        Rke2Role::Server => Rke2Configure {
            role,
            config: config::server(&config, member),
            token: secret(names::SERVER_TOKEN)?,
            agent_token: Some(secret(names::AGENT_TOKEN)?),
        },
        Rke2Role::Agent => Rke2Configure {
            role,
            config: config::agent(&config, workload, member).ok_or("its server")?,
            token: secret(names::JOIN_TOKEN)?,
            agent_token: None,
        },
    })
}

/// Returns true if a stop of this operation also ends what RKE2 leaves running. A removal must not: the member's etcd takes part in its own
/// removal, and the uninstall that follows ends everything.
pub(crate) const fn kills_all(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::Stop | OperationKind::Repair)
}

/// Returns true if RKE2 was completely installed for the member.
fn is_installed(member: &MemberView, workload: &WorkloadView) -> bool {
    workload.facts.get(&names::installed(&member.name)).is_some_and(|was| *was == Value::Bool(true))
}

/// Returns the part of the release that the member's node has at least. A member becomes touched only after the fetch.
fn install_progress(member: &MemberView, workload: &WorkloadView) -> InstallProgress {
    if is_installed(member, workload) {
        InstallProgress::Installed
    } else if member.touched {
        InstallProgress::Fetched
    } else {
        InstallProgress::None
    }
}

/// Returns the RKE2 service that a member runs.
pub(crate) fn role(member: &MemberView) -> Rke2Role {
    if member.component_key == names::SERVER { Rke2Role::Server } else { Rke2Role::Agent }
}

fn value(task: &impl Serialize) -> Result<Value, RenderError> {
    Ok(serde_json::to_value(task).expect("task parameters are plain data with text keys"))
}

fn artifact(workload: &WorkloadView, name: &str) -> Option<ArtifactRef> {
    let found: &ArtifactView = workload.release.artifacts.iter().find(|artifact| artifact.name == name)?;
    Some(ArtifactRef { name: found.name.clone(), sha256: found.sha256.clone(), size_bytes: found.size_bytes })
}

fn reference(secret: &SecretView) -> SecretRef {
    SecretRef { secret_id: secret.id, sha256: secret.sha256.clone() }
}
