//! The parameters of each task, from what is known when it starts.

use gpuaas_planner::{ArtifactView, MemberView, RenderError, SecretView, StepAction, StepSpec, WorkloadView};
use gpuaas_wire::task::{
    ArtifactFetch, ArtifactRef, Preflight, Residue, Rke2Configure, Rke2Install, Rke2KubeconfigRead, Rke2Role,
    Rke2Start, Rke2Stop, Rke2Uninstall, SecretRef,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    config, faults,
    manifest::{ARCHIVE, IMAGES},
    names,
};

/// Ports that must be free on a server's own address.
const SERVER_PORTS: &[u16] = &[9_345, 6_443, 2_379, 2_380, 2_381, 10_250];
/// Ports that must be free on an agent's own address.
const AGENT_PORTS: &[u16] = &[10_250];
/// Leftovers of an earlier cluster, which make a new one fail in odd ways.
const LEFTOVERS: &[&str] =
    &["/var/lib/rancher/rke2/server/db", "/var/lib/rancher/rke2/server/token", "/var/lib/kubelet/pods"];
/// What RKE2's uninstall deletes whole, also what it did not make.
const ENDANGERED: &[&str] = &["/etc/cni", "/opt/cni/bin"];
/// Room for binaries, images and a young etcd.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// What an uninstall must have removed.
const REMOVED_PATHS: &[&str] = &[
    "/usr/local/bin/rke2",
    "/usr/local/bin/rke2-killall.sh",
    "/usr/local/bin/rke2-uninstall.sh",
    "/usr/local/lib/systemd/system/rke2-server.service",
    "/usr/local/lib/systemd/system/rke2-agent.service",
    "/usr/local/share/rke2",
    "/etc/rancher/rke2",
    "/etc/rancher/node",
    "/var/lib/rancher/rke2",
    "/var/lib/kubelet",
];
/// Restarts of the unit after which it counts as failing: its program ended three times.
const RESTARTS_MAX: u32 = 2;

/// The parameters of one attempt.
pub(crate) fn render(step: &StepSpec, workload: &WorkloadView) -> Result<Value, RenderError> {
    let missing = |missing: &str| RenderError { step: step.key.to_string(), missing: missing.to_owned() };
    let StepAction::NodeTask { task, .. } = &step.action else { return Ok(Value::Null) };
    let member = step.member.and_then(|id| workload.member(id)).ok_or_else(|| missing("its member"))?;
    let role = role(member);
    use gpuaas_model::TaskType as T;
    match task {
        // On a node that this member has touched before, files and listeners are its own.
        T::Preflight => value(&Preflight {
            ports: match role {
                _ if member.touched => Vec::new(),
                Rke2Role::Server => SERVER_PORTS.to_vec(),
                Rke2Role::Agent => AGENT_PORTS.to_vec(),
            },
            absent_paths: if member.touched { Vec::new() } else { texts(LEFTOVERS) },
            endangered_paths: texts(ENDANGERED),
            free_bytes_min: FREE_BYTES_MIN,
        }),
        T::ArtifactFetch => {
            let artifacts = [ARCHIVE, IMAGES].map(|name| artifact(workload, name).ok_or_else(|| missing(name)));
            value(&ArtifactFetch { artifacts: artifacts.into_iter().collect::<Result<_, _>>()? })
        }
        T::Rke2Install => value(&Rke2Install {
            version: workload.release.version.clone(),
            archive: artifact(workload, ARCHIVE).ok_or_else(|| missing(ARCHIVE))?,
            images: vec![artifact(workload, IMAGES).ok_or_else(|| missing(IMAGES))?],
        }),
        T::Rke2Configure => {
            let secret = |name: &str| workload.secrets.get(name).map(reference).ok_or_else(|| missing(name));
            value(&match role {
                Rke2Role::Server => Rke2Configure {
                    role,
                    config: config::server(workload, member),
                    token: secret(names::SERVER_TOKEN)?,
                    agent_token: Some(secret(names::AGENT_TOKEN)?),
                },
                Rke2Role::Agent => Rke2Configure {
                    role,
                    config: config::agent(workload, member).ok_or_else(|| missing("its server"))?,
                    token: secret(names::JOIN_TOKEN)?,
                    agent_token: None,
                },
            })
        }
        T::Rke2Start => value(&Rke2Start { role, give_up_on: faults::give_up_on(), restarts_max: RESTARTS_MAX }),
        T::Rke2Stop => value(&Rke2Stop { role }),
        T::Rke2KubeconfigRead => {
            let secret =
                workload.secrets.get(names::ADMIN_KUBECONFIG).ok_or_else(|| missing(names::ADMIN_KUBECONFIG))?;
            value(&Rke2KubeconfigRead { secret_id: secret.id })
        }
        T::Rke2Uninstall => value(&Rke2Uninstall {}),
        T::Residue => value(&Residue {
            paths: texts(REMOVED_PATHS),
            mount_prefixes: texts(&["/run/k3s", "/var/lib/kubelet"]),
            ports: SERVER_PORTS.to_vec(),
            units: texts(&[Rke2Role::Server.unit(), Rke2Role::Agent.unit()]),
            process_prefixes: texts(&["/usr/local/bin/rke2", "/var/lib/rancher/rke2"]),
        }),
        T::Noop | T::Inspect | T::Rke2Observe => Err(missing("a use for that task")),
    }
}

/// Which of RKE2's services a member runs.
pub(crate) fn role(member: &MemberView) -> Rke2Role {
    if member.component_key == names::SERVER { Rke2Role::Server } else { Rke2Role::Agent }
}

fn value(task: &impl Serialize) -> Result<Value, RenderError> {
    Ok(serde_json::to_value(task).expect("task parameters are plain data with text keys"))
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn artifact(workload: &WorkloadView, name: &str) -> Option<ArtifactRef> {
    let found: &ArtifactView = workload.release.artifacts.iter().find(|artifact| artifact.name == name)?;
    Some(ArtifactRef { name: found.name.clone(), sha256: found.sha256.clone(), size_bytes: found.size_bytes })
}

fn reference(secret: &SecretView) -> SecretRef {
    SecretRef { secret_id: secret.id, sha256: secret.sha256.clone() }
}
