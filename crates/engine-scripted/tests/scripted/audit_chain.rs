//! The chain of the audit: records are sealed, and a verification names what was done to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use gpuaas_engine::{ChainError, ChainHead, Engine, Sealing, Verification, commands::audit_chain};
use gpuaas_model::{AuditAction, ChainDefect, Code, Coded, KeyState, OwnActor};
use gpuaas_store::{AuditSealRecord, Gate, NewAudit, SigningKeyRecord, StoreError};
use serde_json::json;

use crate::engines::{Engines, admin, eventually};

/// Permits the changes that triggers refuse, as the owner of the tables can.
const PERMIT: &str = "drop trigger audit_is_not_updated; drop trigger audit_is_not_deleted; \
     drop trigger audit_seals_are_not_updated; drop trigger audit_seals_are_not_deleted;";
/// The name of the sealer's lease.
const LEASE: &str = "audit-sealer";

async fn append(engines: &Engines, records: usize) {
    let mut tx = engines.store().begin().await.unwrap();
    for number in 0..records {
        let target = format!("node/gpu-{number}");
        let about = json!({ "number": number });
        tx.append_audit(&NewAudit::of_own(OwnActor::ControlPlane, AuditAction::NodePing, target, about)).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Appends records and seals them.
async fn seal(engines: &Engines, records: usize) {
    append(engines, records).await;
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
}

async fn newest(engines: &Engines) -> Option<AuditSealRecord> {
    engines.store().read().await.unwrap().newest_audit_seal().await.unwrap()
}

async fn verify_by(engine: &Engine, expected: Option<&ChainHead>) -> Verification {
    audit_chain::verify(engine, &admin(), expected).await.unwrap()
}

/// Returns how and where the chain is broken: the defect with the numbers of its seal and its record.
async fn defect(engines: &Engines, expected: Option<&ChainHead>) -> Option<(ChainDefect, Option<u64>, Option<u64>)> {
    let broken = verify_by(&engines.engine, expected).await.broken;
    broken.map(|broken| (broken.defect, broken.seal, broken.record))
}

/// Creates engines whose audit has three seals of three records each, and two records without a seal.
async fn with_three_seals() -> Engines {
    let engines = Engines::new().await;
    for _ in 0..3 {
        seal(&engines, 3).await;
    }
    append(&engines, 2).await;
    engines
}

/// Returns a gate that lets `passes` readers and changes through and then none, and how many have come.
fn gate_after(passes: usize) -> (Gate, Arc<AtomicUsize>) {
    let came = Arc::new(AtomicUsize::new(0));
    let counted = came.clone();
    let gate: Gate = Arc::new(move || match counted.fetch_add(1, Ordering::SeqCst) {
        before if before < passes => async { Ok::<_, StoreError>(()) }.boxed(),
        _ => std::future::pending::<Result<(), StoreError>>().boxed(),
    });
    (gate, came)
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_records_are_intact_and_a_noted_head_stays_part_of_the_chain() {
    let engines = Engines::new().await;
    let empty = verify_by(&engines.engine, None).await;
    assert_eq!((empty.records, empty.seals, empty.head, empty.broken), (0, 0, None, None));
    seal(&engines, 3).await;
    let noted = verify_by(&engines.engine, None).await;
    // The first verification has a record, too.
    assert_eq!((noted.records, noted.seals, noted.unsealed, &noted.broken), (4, 1, 0, &None));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    append(&engines, 2).await;
    let later = verify_by(&engines.engine, noted.head.as_ref()).await;
    assert_eq!((later.records, later.seals, later.unsealed, &later.broken), (7, 2, 2, &None));
    assert_eq!(engines.recorded(AuditAction::AuditVerify).await, 3);
    let view = audit_chain::show(&engines.engine, &admin()).await.unwrap();
    let head = later.head.expect("there are seals");
    let newest = view.newest.expect("there are seals");
    assert_eq!((newest.number, &newest.digest), (head.seal, &head.digest));
    assert_eq!((view.records, view.unsealed, view.unsealed_since.is_some()), (8, 3, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_manipulation_is_named_with_its_place() {
    let columns = "at, actor, actor_type, action, target, project_id, result, correlation, metadata, workload_id";
    let added = format!("insert into audit (sequence, {columns}) select 100, {columns} from audit where sequence = 11");
    // The verification itself can then append no record.
    let added_next = added.replace("100", "12");
    for (sql, expected) in [
        ("update audit set actor = 'eve' where sequence = 5", (ChainDefect::Changed, Some(2), None)),
        ("update audit set at = at + 1 where sequence = 5", (ChainDefect::Changed, Some(2), None)),
        ("update audit set action = 'forged' where sequence = 5", (ChainDefect::Changed, Some(2), Some(5))),
        ("delete from audit where sequence = 5", (ChainDefect::Missing, Some(2), Some(5))),
        ("delete from audit where sequence = 10", (ChainDefect::Missing, None, Some(10))),
        ("delete from audit where sequence = 11", (ChainDefect::Missing, None, Some(11))),
        (added.as_str(), (ChainDefect::Added, None, Some(100))),
        (added_next.as_str(), (ChainDefect::Added, None, Some(12))),
        ("update streams set last_sequence = 5 where stream = 'audit'", (ChainDefect::Changed, Some(3), None)),
        (
            "update audit set sequence = 100 where sequence = 4; update audit set sequence = 4 where sequence = 5; \
             update audit set sequence = 5 where sequence = 100",
            (ChainDefect::Changed, Some(2), None),
        ),
        ("update audit_seals set at = at + 1 where number = 2", (ChainDefect::Signature, Some(2), None)),
        ("update audit_seals set key_id = 'ed25519-0' where number = 2", (ChainDefect::Signature, Some(2), None)),
        ("delete from audit_seals where number = 2", (ChainDefect::Missing, Some(2), None)),
        ("delete from audit_seals where number = 1", (ChainDefect::Missing, Some(1), None)),
        (
            "insert into audit_seals select 4, 10, 11, 2, at, digest, digest, key_id, signature from audit_seals \
             where number = 3",
            (ChainDefect::Signature, Some(4), None),
        ),
    ] {
        let engines = with_three_seals().await;
        engines.execute_sql(&format!("{PERMIT} {sql}"));
        assert_eq!(defect(&engines, None).await, Some(expected), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_tail_is_found_by_a_head_that_was_noted_before() {
    let engines = with_three_seals().await;
    let noted = verify_by(&engines.engine, None).await.head.expect("there are seals");
    let cut = "delete from audit_seals where number = 3; delete from audit where sequence > 6; \
               update streams set last_sequence = 6 where stream = 'audit'";
    engines.execute_sql(&format!("{PERMIT} {cut}"));
    assert_eq!(defect(&engines, Some(&noted)).await, Some((ChainDefect::Missing, Some(3), None)));
    assert_eq!(defect(&engines, None).await, None, "without the head the rest looks complete");
    let other = ChainHead { seal: 2, digest: "0".repeat(64) };
    assert_eq!(defect(&engines, Some(&other)).await, Some((ChainDefect::Changed, Some(2), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_that_were_removed_are_made_again_and_only_a_noted_head_shows_it() {
    let engines = with_three_seals().await;
    let noted = verify_by(&engines.engine, None).await.head.expect("there are seals");
    let rewrite = "delete from audit_seals; update audit set actor = 'eve' where sequence = 5";
    engines.execute_sql(&format!("{PERMIT} {rewrite}"));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(defect(&engines, None).await, None, "docs/security.md names this limit");
    assert_eq!(defect(&engines, Some(&noted)).await, Some((ChainDefect::Missing, Some(2), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn record_that_was_missing_when_it_was_to_be_sealed_cannot_be_added_later() {
    let engines = Engines::new().await;
    append(&engines, 3).await;
    let remove = "create table kept as select * from audit where sequence = 2; delete from audit where sequence = 2";
    engines.execute_sql(&format!("{PERMIT} {remove}"));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete, "later records are protected");
    assert_eq!(defect(&engines, None).await, Some((ChainDefect::Missing, Some(1), Some(2))));
    engines.execute_sql("insert into audit select * from kept");
    assert_eq!(defect(&engines, None).await, Some((ChainDefect::Added, Some(1), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_record_keeps_no_later_record_from_its_seal() {
    let engines = Engines::new().await;
    append(&engines, 3).await;
    let forge = "update audit set action = 'forged' where sequence = 2";
    engines.execute_sql(&format!("{PERMIT} {forge}"));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(newest(&engines).await.map(|seal| (seal.last, seal.records)), Some((3, 2)));
    assert_eq!(defect(&engines, None).await, Some((ChainDefect::Changed, Some(1), Some(2))));
}

#[tokio::test(flavor = "multi_thread")]
async fn record_above_the_counter_is_not_sealed() {
    let engines = Engines::new().await;
    append(&engines, 3).await;
    engines.execute_sql(
        "create table kept as select * from audit where sequence = 3; update kept set sequence = 1000; \
         insert into audit select * from kept",
    );
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(newest(&engines).await.map(|seal| (seal.last, seal.records)), Some((3, 3)));
    assert_eq!(defect(&engines, None).await, Some((ChainDefect::Added, None, Some(1_000))));
}

#[tokio::test(flavor = "multi_thread")]
async fn seal_of_records_that_were_never_written_is_an_error() {
    let engines = with_three_seals().await;
    let forge = "insert into audit_seals select 4, 10, 1000, 991, at, digest, digest, key_id, signature from audit_seals \
                 where number = 3";
    engines.execute_sql(forge);
    let refused = engines.engine.seal_audit().await.expect_err("there are 11 records");
    assert!(matches!(refused, ChainError::Ahead { sealed: 1_000, written: 11 }), "{refused}");
    assert_eq!(defect(&engines, None).await, Some((ChainDefect::Signature, Some(4), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn record_that_only_an_archive_still_has_is_read_from_there() {
    let engines = Engines::new().await;
    seal(&engines, 5).await;
    seal(&engines, 2).await;
    engines.execute_sql("create table kept as select * from audit");
    engines.later().await.retain().await.unwrap();
    engines.execute_sql("insert into audit select * from kept where sequence in (1, 2, 4, 5)");
    let verified = verify_by(&engines.engine, None).await;
    assert_eq!((verified.seals, &verified.broken), (2, &None), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_records_are_verified_from_their_files() {
    let engines = Engines::new().await;
    seal(&engines, 5).await;
    append(&engines, 2).await;
    engines.later().await.retain().await.unwrap();
    // Some of the archived records had no seal yet.
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    let verified = verify_by(&engines.engine, None).await;
    assert!(verified.archived >= 6, "only the newest records stay in the database: {verified:?}");
    assert_eq!((verified.seals, &verified.broken), (2, &None));
    engines.files.kept.lock().unwrap().clear();
    assert_eq!(defect(&engines, None).await, Some((ChainDefect::Missing, Some(1), Some(1))));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_seals_and_another_continues_when_its_turn_has_ended() {
    let engines = Engines::new().await;
    let other = engines.successor().await;
    seal(&engines, 2).await;
    append(&engines, 2).await;
    assert_eq!(other.seal_audit().await.unwrap(), Sealing::Elsewhere);
    engines.store().release_lease(LEASE, engines.engine.replica()).await.unwrap();
    assert_eq!(other.seal_audit().await.unwrap(), Sealing::Complete);
    append(&engines, 1).await;
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Elsewhere);
    let verified = verify_by(&other, None).await;
    assert_eq!((verified.seals, verified.unsealed, &verified.broken), (2, 1, &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn sealer_that_dies_after_reading_leaves_no_seal() {
    let engines = Engines::new().await;
    append(&engines, 2).await;
    // Reads the newest seal, a page of records and an empty page; then begins the change.
    let (gate, came) = gate_after(3);
    let dying = engines.successor_behind(gate).await;
    let before = came.load(Ordering::SeqCst);
    let sealing = tokio::spawn(async move { dying.seal_audit().await.map(drop) });
    eventually("it does not begin its change", async || came.load(Ordering::SeqCst) > before.max(3)).await;
    sealing.abort();
    assert!(sealing.await.expect_err("it was aborted").is_cancelled());
    assert_eq!(newest(&engines).await, None);
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(newest(&engines).await.map(|seal| (seal.number, seal.last)), Some((1, 2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_stay_valid_when_their_key_is_replaced() {
    let engines = Engines::new().await;
    seal(&engines, 2).await;
    let now = engines.engine.ports().clock.now();
    let entropy = engines.engine.ports().entropy.clone();
    let successor = engines.engine.keys().generate_signing_key(KeyState::Active, 2, now, &*entropy).unwrap();
    let mut tx = engines.store().begin().await.unwrap();
    let first = tx.signing_keys().await.unwrap().remove(0).key;
    tx.update_signing_key(&SigningKeyRecord { state: KeyState::Retired, version: 2, ..first }).await.unwrap();
    tx.insert_signing_key(&successor).await.unwrap();
    tx.commit().await.unwrap();
    seal(&engines, 2).await;
    assert_eq!(newest(&engines).await.map(|seal| seal.key_id), Some(successor.key.key_id));
    let verified = verify_by(&engines.engine, None).await;
    assert_eq!((verified.seals, &verified.broken), (2, &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn second_verification_at_the_same_time_is_refused() {
    let engines = Engines::new().await;
    let (gate, came) = gate_after(0);
    let engine = engines.successor_behind(gate).await;
    let before = came.load(Ordering::SeqCst);
    let first = engine.clone();
    let running = tokio::spawn(async move { audit_chain::verify(&first, &admin(), None).await.map(drop) });
    eventually("it does not begin", async || came.load(Ordering::SeqCst) > before).await;
    let refused = audit_chain::verify(&engine, &admin(), None).await.expect_err("one runs");
    assert_eq!(refused.code(), Code::RateLimited);
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn written_records_are_sealed_without_a_request() {
    let engines = Engines::new().await;
    let engine = engines.engine.clone();
    let sealer = tokio::spawn(async move { engine.run_audit_sealer().await });
    for last in [1, 4] {
        append(&engines, if last == 1 { 1 } else { 3 }).await;
        eventually("the records are not sealed", async || newest(&engines).await.is_some_and(|seal| seal.last == last))
            .await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(newest(&engines).await.map(|seal| seal.number), Some(2), "without records there are no seals");
    engines.engine.stop();
    sealer.await.expect("it ends with its engine");
}
