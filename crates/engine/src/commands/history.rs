//! Detects that the database went back, from facts that nodes have and the rows lack.
//!
//! A tenant has root on its node, and its agent can report anything. Therefore a node's report isolates only that node. All changes stop
//! only for a certificate that this control plane alone can have issued, and that the rows would contain if they were the newest.

use gpuaas_model::{Code, Timestamp};
use gpuaas_store::{NodeRecord, Reader, StoreError, Tx};
use gpuaas_trust::{NodeIdentity, certified_key_sha256, issued_at};
use gpuaas_wire::session::Hello;

use crate::error::CommandError;

/// Evidence that the database went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackEvidence {
    /// Description of the evidence.
    pub why: String,
    /// When the certificate was issued.
    pub issued_at: Timestamp,
}

/// Returns evidence if the rows lack a certificate that an authority of this control plane signed; `known` is the node's row. Every
/// certificate is in the rows before it is delivered. A certificate from before the present generation of the history is no evidence: that
/// generation began without the lost changes.
pub async fn rollback_evidence(
    reader: &mut Reader,
    identity: &NodeIdentity,
    certificate: &[u8],
    known: Option<&NodeRecord>,
) -> Result<Option<RollbackEvidence>, StoreError> {
    let Some(generation) = reader.history_generation() else { return Ok(None) };
    let (Ok(issued_at), Ok(key)) = (issued_at(certificate), certified_key_sha256(certificate)) else { return Ok(None) };
    if u64::try_from(issued_at.as_millis()).unwrap_or(0) <= generation {
        return Ok(None);
    }
    let of = |what: String| Ok(Some(RollbackEvidence { why: format!("{what}, issued at {issued_at}"), issued_at }));
    let NodeIdentity { node, epoch, .. } = identity;
    match known {
        None => of(format!("unknown node {node} has a certificate of this control plane")),
        Some(known) if known.epoch < *epoch => of(format!(
            "node {} is in enrollment {} and has a certificate of enrollment {epoch}",
            known.name, known.epoch
        )),
        Some(known) if known.epoch == *epoch && !reader.is_node_key(&key).await? => {
            // The oldest keys of a node are deleted, so only a certificate newer than all of its keys is evidence. Frequent renewals cannot
            // produce that case.
            match reader.newest_key_of(*node).await? {
                Some(newest) if newest < issued_at => {
                    of(format!("node {} has a certificate that the database lacks", known.name))
                }
                Some(_) | None => Ok(None),
            }
        }
        Some(_) => Ok(None),
    }
}

/// Refuses a node that reports a higher fence or a newer key set than this control plane has issued. Nothing proves the report, so only
/// this node is refused.
pub(super) async fn check_not_ahead(
    tx: &mut Tx,
    node: &NodeRecord,
    hello: &Hello,
    version: u64,
) -> Result<(), CommandError> {
    // Without a lease, no task was signed for this node: its ledger is from an earlier registration of the machine, under another name.
    let fence = tx.lease(&format!("node/{}", node.id)).await?.map_or(u64::MAX, |lease| lease.fence);
    let ahead = match hello {
        Hello { fence: seen, .. } if *seen > fence => format!("fence {seen}, but the highest issued one is {fence}"),
        Hello { key_set_version: seen, .. } if *seen > version => {
            format!("key set {seen}, but the newest issued one is {version}")
        }
        _ => return Ok(()),
    };
    let NodeRecord { name, .. } = node;
    Err(CommandError::new(Code::NodeReportsNewerState, format!("{name} reports {ahead}")).then(format!(
        "if the database may have gone back, restore a backup or run gpuaas server accept-history; otherwise the node's report is false: reimage \
         its machine, then run gpuaas node reset {name} --force --reason TEXT"
    )))
}
