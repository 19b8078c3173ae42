//! `rke2.observe`: reports the state of RKE2 on the node, and what differs from what the task expects; changes nothing.

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::{Rke2Observation, Rke2Observe, Rke2Role};
use gpuaas_handler::{Context, host_failed, report, tail};
use gpuaas_host::{JournalFrom, now};
use gpuaas_trust::{root_of_bundle, sha256_hex};
use gpuaas_wire::task::TaskFailure;

use crate::{
    drift::{self, Config},
    program::Program,
};

/// Path of the cluster's CA certificate on a server.
const SERVER_CA: &str = "/var/lib/rancher/rke2/server/tls/server-ca.crt";
/// Largest CA file that is read, in bytes.
const CA_BYTES_MAX: u64 = 64 * 1_024;
/// Ports at which RKE2 listens on the node's own address.
const PORTS: &[u16] = &[9_345, 6_443, 2_379, 2_380, 10_250];
/// Number of journal lines in an observation.
const JOURNAL_LINES: u32 = 20;

/// Collects the observation.
pub(crate) async fn run(task: Rke2Observe, context: Context) -> Result<Rke2Observation, TaskFailure> {
    let unit = task.role.unit();
    let program = Program::look(&context).await?;
    let config = Config::read(&context).await?;
    let deviations = match &task.expected {
        Some(expected) => drift::deviations(task.role, expected, &program, &config, &context).await?,
        None => Vec::new(),
    };
    Ok(Rke2Observation {
        unit: context.host.units().unit(unit).await.map_err(host_failed)?.map(report),
        version_line: program.version_line(),
        listening: context.host.inventory().listening(PORTS).await.map_err(host_failed)?,
        ca_sha256: match task.role {
            Rke2Role::Server => ca_sha256(&context).await?,
            Rke2Role::Agent => None,
        },
        // Without the journal: drift checks are frequent, and everyone who may list tasks reads their results.
        journal: match &task.expected {
            Some(_) => Vec::new(),
            None => tail(&context, unit, JournalFrom::Tail(JOURNAL_LINES)).await,
        },
        config_sha256: config.sha256(),
        deviations,
    })
}

/// Returns the CA hash that K10 tokens contain; `None` without a CA file. For a CA file with one certificate, it is the SHA-256 of the
/// file's bytes. For a bundle (after a rotation or with a custom CA), it is the SHA-256 of the DER of the root to which its first
/// certificate chains.
pub(crate) async fn ca_sha256(context: &Context) -> Result<Option<String>, TaskFailure> {
    let ca = context.host.files().read(Utf8Path::new(SERVER_CA), CA_BYTES_MAX).await.map_err(host_failed)?;
    Ok(ca.map(|bytes| {
        let root = root_of_bundle(&String::from_utf8_lossy(&bytes), now());
        sha256_hex(&root.unwrap_or(bytes))
    }))
}

#[cfg(test)]
mod tests {
    use gpuaas_handler::test_host::{context, sandbox};
    use gpuaas_trust::{Authority, NodeIdentity, NodeKey, certificates_of_pem};

    use super::*;

    async fn hash_of(pem: &str) -> Option<String> {
        let (_folder, host) = sandbox(&[(SERVER_CA, pem)]);
        ca_sha256(&context(&host)).await.unwrap()
    }

    #[tokio::test]
    async fn ca_hash_covers_the_root_of_a_bundle_or_a_single_certificate_file() {
        let root = Authority::generate("root", now()).unwrap();
        let node = "0198c0de-7a3b-7c11-9b54-0242ac120001".parse().unwrap();
        let intermediate = NodeIdentity { control_plane: "root".to_owned(), node, epoch: 1 };
        let intermediate_pem =
            root.issue_node(&NodeKey::generate().unwrap().request_pem().unwrap(), &intermediate, now()).unwrap();
        let root_pem = root.certificate_pem();
        assert_eq!(hash_of(root_pem).await, Some(sha256_hex(root_pem.as_bytes())));
        let der = certificates_of_pem(root_pem).unwrap().remove(0);
        assert_eq!(
            hash_of(&format!("{intermediate_pem}{root_pem}")).await,
            Some(sha256_hex(&der)),
            "RKE2's own tokens contain the root's digest"
        );
        let (_folder, host) = sandbox(&[]);
        assert_eq!(ca_sha256(&context(&host)).await.unwrap(), None);
    }
}
