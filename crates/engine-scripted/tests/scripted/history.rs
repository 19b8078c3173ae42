//! Certificates as evidence that the database lost rows.

use std::time::Duration;

use gpuaas_engine::commands::history::rollback_evidence;
use gpuaas_model::{EnrolledNode, NodeId, Timestamp};
use gpuaas_store::{Mark, MarkFile, NodeKeyRecord, NodeRecord};
use gpuaas_trust::{NodeIdentity, NodeKey, certificates_of_pem, certified_key_sha256};
use uuid::Uuid;

use crate::engines::Engines;

/// Begins a generation of the history at `began` and keeps its mark in `folder`.
async fn keep_mark(engines: &Engines, folder: &tempfile::TempDir, began: Timestamp) {
    let mut tx = engines.store().begin().await.unwrap();
    let generation = tx.begin_marks(began.as_millis() as u64).await.unwrap();
    tx.commit().await.unwrap();
    let mark = Mark::fresh("cp".to_owned(), generation, 0, began);
    engines.store().keep_mark(MarkFile::create(&folder.path().join("history.mark"), mark).unwrap());
}

fn certificate(engines: &Engines, identity: &NodeIdentity, at: Timestamp) -> Vec<u8> {
    let csr = NodeKey::generate().unwrap().request_pem().unwrap();
    let pem = engines.engine.keys().authority().issue_node(&csr, identity, at).unwrap();
    certificates_of_pem(&pem).unwrap().remove(0).to_vec()
}

async fn record_key(engines: &Engines, node: EnrolledNode, sha256: String, created_at: Timestamp) {
    let mut tx = engines.store().begin().await.unwrap();
    let EnrolledNode { node, epoch } = node;
    tx.insert_node_key(&NodeKeyRecord { sha256, node, epoch, created_at }).await.unwrap();
    tx.commit().await.unwrap();
}

async fn evidence(
    engines: &Engines,
    of: &NodeIdentity,
    certificate: &[u8],
    known: Option<&NodeRecord>,
) -> Option<String> {
    let mut reader = engines.store().read().await.unwrap();
    rollback_evidence(&mut reader, of, certificate, known).await.unwrap().map(|evidence| evidence.why)
}

#[tokio::test(flavor = "multi_thread")]
async fn unrecorded_certificate_shows_that_the_database_went_back() {
    let (engines, folder) = (Engines::new().await, tempfile::tempdir().unwrap());
    let node = engines.node("gpu-1").await;
    let known = engines.store().read().await.unwrap().node(node).await.unwrap();
    let began = Timestamp::from_millis(known.created_at.as_millis() + 60_000);
    let (before, after) = (Timestamp::from_millis(began.as_millis() - 30_000), began.plus(Duration::from_secs(3_600)));
    let own = NodeIdentity { control_plane: "cp".to_owned(), node, epoch: known.epoch };
    let later = NodeIdentity { epoch: known.epoch + 1, ..own.clone() };
    let unknown_node = NodeIdentity { node: NodeId::from_uuid(Uuid::from_u128(7)), ..own.clone() };
    let cases = [(&own, Some(&known)), (&later, Some(&known)), (&unknown_node, None)];
    for (identity, known) in cases {
        assert_eq!(
            evidence(&engines, identity, &certificate(&engines, identity, after), known).await,
            None,
            "no mark is kept"
        );
    }
    keep_mark(&engines, &folder, began).await;
    for (identity, known) in cases {
        let why = evidence(&engines, identity, &certificate(&engines, identity, after), known).await;
        println!("    {}", why.expect("the rows lack it"));
        let earlier = evidence(&engines, identity, &certificate(&engines, identity, before), known).await;
        assert_eq!(earlier, None, "it is older than the present generation");
    }
    let newer = NodeRecord { epoch: known.epoch + 2, ..known.clone() };
    assert_eq!(
        evidence(&engines, &later, &certificate(&engines, &later, after), Some(&newer)).await,
        None,
        "it was replaced"
    );
    let good = certificate(&engines, &own, after);
    record_key(&engines, own.enrolled(), certified_key_sha256(&good).unwrap(), after).await;
    assert_eq!(evidence(&engines, &own, &good, Some(&known)).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_whose_old_key_was_deleted_is_no_evidence() {
    let (engines, folder) = (Engines::new().await, tempfile::tempdir().unwrap());
    let node = engines.node("gpu-1").await;
    let known = engines.store().read().await.unwrap().node(node).await.unwrap();
    keep_mark(&engines, &folder, known.created_at).await;
    let own = NodeIdentity { control_plane: "cp".to_owned(), node, epoch: known.epoch };
    let at = |seconds: u64| known.created_at.plus(Duration::from_secs(3_600 + seconds));
    // A tenant renews its certificate again and again, and keeps the first one.
    let first = certificate(&engines, &own, at(0));
    let key = certified_key_sha256(&first).unwrap();
    record_key(&engines, own.enrolled(), key.clone(), at(0)).await;
    for number in 1..=256 {
        record_key(&engines, own.enrolled(), format!("{number:064x}"), at(number / 4)).await;
    }
    assert!(!engines.store().read().await.unwrap().is_node_key(&key).await.unwrap(), "its row was deleted");
    assert_eq!(evidence(&engines, &own, &first, Some(&known)).await, None);
}
