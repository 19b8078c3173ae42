//! What nodes know that the rows do not: then history went back.
//!
//! A tenant is root on its node, and its agent can say anything. So what a node says sets aside that node alone. What stops all changes is a certificate
//! that only this control plane can have issued, and of which the rows would know if they were the newest.

use gpuaas_model::{Code, Timestamp};
use gpuaas_store::{NodeRecord, Reader, StoreError, Tx};
use gpuaas_trust::{NodeIdentity, certified_key_sha256, issued_at};
use gpuaas_wire::session::Hello;

use crate::error::CommandError;

/// What shows that history went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// In words.
    pub why: String,
    /// Of when it is.
    pub issued_at: Timestamp,
}

/// Whether the rows, of which `known` is the node's, have forgotten a certificate that an authority of this control plane signed: every certificate is
/// in the rows before it is given to anybody. One from before the present generation of the history shows nothing: it began without what was lost.
pub async fn forgotten(
    reader: &mut Reader,
    identity: &NodeIdentity,
    certificate: &[u8],
    known: Option<&NodeRecord>,
) -> Result<Option<Forgotten>, StoreError> {
    let Some(generation) = reader.history_generation() else { return Ok(None) };
    let (Ok(issued_at), Ok(key)) = (issued_at(certificate), certified_key_sha256(certificate)) else { return Ok(None) };
    if u64::try_from(issued_at.as_millis()).unwrap_or(0) <= generation {
        return Ok(None);
    }
    let of = |what: String| Ok(Some(Forgotten { why: format!("{what}, issued at {issued_at}"), issued_at }));
    let NodeIdentity { node, epoch, .. } = identity;
    match known {
        None => of(format!("node {node}, which the database does not know, has a certificate of this control plane")),
        Some(known) if known.epoch < *epoch => of(format!(
            "node {} has a certificate of enrollment {epoch}, and the database knows {}",
            known.name, known.epoch
        )),
        Some(known) if known.epoch == *epoch && !reader.is_node_key(&key).await? => {
            // The oldest keys of a node are forgotten, so only one that is newer than all shows something: whoever renews often cannot make it so.
            match reader.newest_key_of(*node).await? {
                Some(newest) if newest < issued_at => {
                    of(format!("node {} has a certificate that the database does not know", known.name))
                }
                Some(_) | None => Ok(None),
            }
        }
        Some(_) => Ok(None),
    }
}

/// Refuses a node that says that it has seen a higher fence, or a newer key set, than this control plane has given out. Nothing proves its word, so
/// it is set aside, and the others go on.
pub(super) async fn must_not_be_ahead(
    tx: &mut Tx,
    node: &NodeRecord,
    hello: &Hello,
    version: u64,
) -> Result<(), CommandError> {
    // Without a lease no task was signed for this node: its ledger is of an earlier life of the machine, under another name.
    let fence = tx.lease(&format!("node/{}", node.id)).await?.map_or(u64::MAX, |lease| lease.fence);
    let ahead = match hello {
        Hello { fence: seen, .. } if *seen > fence => format!("fence {seen}, and the highest is {fence}"),
        Hello { key_set_version: seen, .. } if *seen > version => {
            format!("key set {seen}, and the newest is {version}")
        }
        _ => return Ok(()),
    };
    let NodeRecord { name, .. } = node;
    Err(CommandError::new(Code::NodeAhead, format!("{name} says that it has seen {ahead}")).then(format!(
        "if the database may have gone back, restore a backup or run gpuaas server accept-history; if not, the node is not to be believed: reimage \
         its machine, and gpuaas node reset {name} --force"
    )))
}
