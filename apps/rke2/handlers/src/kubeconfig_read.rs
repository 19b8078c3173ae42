//! `rke2.kubeconfig.read`: stores the distribution's own admin kubeconfig in the control plane's sealed store. The kubeconfig passes
//! through memory and the channel, never through ledger, events or log.

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::{Rke2KubeconfigRead, Rke2KubeconfigStored};
use gpuaas_handler::{Context, host_failed};
use gpuaas_model::Code;
use gpuaas_trust::sha256_hex;
use gpuaas_wire::task::{SecretRef, TaskFailure};
use zeroize::Zeroizing;

/// RKE2's admin kubeconfig on a server.
pub(crate) const KUBECONFIG: &str = "/etc/rancher/rke2/rke2.yaml";
/// Largest kubeconfig that is read, in bytes.
const KUBECONFIG_BYTES_MAX: u64 = 64 * 1_024;

/// Reads the kubeconfig and stores it.
pub(crate) async fn run(task: Rke2KubeconfigRead, context: Context) -> Result<Rke2KubeconfigStored, TaskFailure> {
    let read = context.host.files().read(Utf8Path::new(KUBECONFIG), KUBECONFIG_BYTES_MAX).await.map_err(host_failed)?;
    let missing = || TaskFailure::new(Code::ClusterNotReady, format!("{KUBECONFIG} does not exist yet"));
    let bytes = Zeroizing::new(read.ok_or_else(missing)?);
    let deposited = context.control_plane.deposit(task.secret_id, &bytes).await;
    deposited
        .map_err(|error| TaskFailure::new(Code::ServerUnreachable, format!("depositing the kubeconfig: {error}")))?;
    Ok(Rke2KubeconfigStored { secret: SecretRef { secret_id: task.secret_id, sha256: sha256_hex(&bytes) } })
}
