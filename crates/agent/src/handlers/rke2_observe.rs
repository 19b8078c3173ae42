//! `rke2.observe`: looks, without changing anything.

use camino::Utf8Path;
use gpuaas_host::JournalFrom;
use gpuaas_trust::sha256_hex;
use gpuaas_wire::task::{Rke2Observation, Rke2Observe, Rke2Role, TaskFailure};

use super::rke2_install::version_line;
use crate::{
    context::{Context, host_failed},
    observe::{report, tail},
};

/// The cluster's CA as a server keeps it.
const SERVER_CA: &str = "/var/lib/rancher/rke2/server/tls/server-ca.crt";
/// Longest CA file that is read.
const CA_BYTES_MAX: u64 = 64 * 1_024;
/// Ports that RKE2 listens on at the node's own address.
const PORTS: &[u16] = &[9_345, 6_443, 2_379, 2_380, 10_250];
/// Lines of the journal that an observation carries.
const JOURNAL_LINES: u32 = 20;

/// Looks.
pub(crate) async fn run(task: Rke2Observe, context: Context) -> Result<Rke2Observation, TaskFailure> {
    let unit = task.role.unit();
    let installed = context.host.exists(Utf8Path::new("/usr/local/bin/rke2")).await.map_err(host_failed)?;
    Ok(Rke2Observation {
        unit: context.host.unit(unit).await.map_err(host_failed)?.map(report),
        version_line: if installed { Some(version_line(&context).await?) } else { None },
        listening: context.host.listening(PORTS).await.map_err(host_failed)?,
        ca_sha256: match task.role {
            Rke2Role::Server => ca_sha256(&context).await?,
            Rke2Role::Agent => None,
        },
        journal: tail(&context, unit, JournalFrom::Tail(JOURNAL_LINES)).await,
    })
}

/// SHA-256 of the CA file's bytes: the hash in K10 tokens for a single self-signed CA.
pub(crate) async fn ca_sha256(context: &Context) -> Result<Option<String>, TaskFailure> {
    let ca = context.host.read(Utf8Path::new(SERVER_CA), CA_BYTES_MAX).await.map_err(host_failed)?;
    Ok(ca.map(|bytes| sha256_hex(&bytes)))
}
