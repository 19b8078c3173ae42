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
use gpuaas_model::{AuditAction, ChainDefectKind, Code, Coded, KeyState, OwnActor};
use gpuaas_store::{AuditSealRecord, Gate, NewAudit, SigningKeyRecord, StoreError};
use serde_json::json;
use tokio::sync::Semaphore;

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

/// How and where a chain is broken: the defect with the numbers of its seal and its record.
type Place = (ChainDefectKind, Option<u64>, Option<u64>);

async fn defects(engines: &Engines, expected: Option<&ChainHead>) -> Vec<Place> {
    let verified = verify_by(&engines.engine, expected).await;
    assert_eq!(verified.defects.len() as u64, verified.defects_found.min(20), "{verified:?}");
    verified.defects.into_iter().map(|broken| (broken.kind, broken.seal, broken.record)).collect()
}

/// Returns the only defect, if there is one.
async fn defect(engines: &Engines, expected: Option<&ChainHead>) -> Option<Place> {
    let mut found = defects(engines, expected).await;
    assert!(found.len() <= 1, "{found:?}");
    found.pop()
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
    assert_eq!((empty.records, empty.seals, empty.head, empty.defects_found), (0, 0, None, 0));
    seal(&engines, 3).await;
    let noted = verify_by(&engines.engine, None).await;
    // The first verification has a record, too.
    assert_eq!((noted.records, noted.seals, noted.unsealed, noted.defects_found), (4, 1, 0, 0));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    append(&engines, 2).await;
    let later = verify_by(&engines.engine, noted.head.as_ref()).await;
    assert_eq!((later.records, later.seals, later.unsealed, later.defects_found), (7, 2, 2, 0));
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
        ("update audit set actor = 'eve' where sequence = 5", (ChainDefectKind::Changed, Some(2), None)),
        ("update audit set at = at + 1 where sequence = 5", (ChainDefectKind::Changed, Some(2), None)),
        ("update audit set action = 'forged' where sequence = 5", (ChainDefectKind::Changed, Some(2), Some(5))),
        ("delete from audit where sequence = 5", (ChainDefectKind::Missing, Some(2), Some(5))),
        ("delete from audit where sequence = 10", (ChainDefectKind::Missing, None, Some(10))),
        ("delete from audit where sequence = 11", (ChainDefectKind::Missing, None, Some(11))),
        (added.as_str(), (ChainDefectKind::Added, None, Some(100))),
        (added_next.as_str(), (ChainDefectKind::Added, None, Some(12))),
        ("update streams set last_sequence = 5 where stream = 'audit'", (ChainDefectKind::Changed, Some(3), None)),
        (
            "update audit set sequence = 100 where sequence = 4; update audit set sequence = 4 where sequence = 5; \
             update audit set sequence = 5 where sequence = 100",
            (ChainDefectKind::Changed, Some(2), None),
        ),
        ("update audit_seals set at = at + 1 where number = 2", (ChainDefectKind::Signature, Some(2), None)),
        ("update audit_seals set key_id = 'ed25519-0' where number = 2", (ChainDefectKind::Signature, Some(2), None)),
        ("delete from audit_seals where number = 2", (ChainDefectKind::Missing, Some(2), None)),
        ("delete from audit_seals where number = 1", (ChainDefectKind::Missing, Some(1), None)),
        (
            "insert into audit_seals select 4, 10, 11, 2, at, digest, digest, key_id, signature from audit_seals \
             where number = 3",
            (ChainDefectKind::Signature, Some(4), None),
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
    assert_eq!(defect(&engines, Some(&noted)).await, Some((ChainDefectKind::Missing, Some(3), None)));
    assert_eq!(defect(&engines, None).await, None, "without the head the rest looks complete");
    let other = ChainHead { seal: 2, digest: "0".repeat(64) };
    assert_eq!(defect(&engines, Some(&other)).await, Some((ChainDefectKind::Changed, Some(2), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_seals_stop_the_sealing_until_a_restart_and_a_noted_head_shows_them() {
    let engines = with_three_seals().await;
    let noted = verify_by(&engines.engine, None).await.head.expect("there are seals");
    let other = engines.successor().await;
    assert_eq!(other.seal_audit().await.unwrap(), Sealing::Elsewhere, "it has read the newest seal");
    let rewrite = "delete from audit_seals; update audit set actor = 'eve' where sequence = 5";
    engines.execute_sql(&format!("{PERMIT} {rewrite}"));
    for engine in [&engines.engine, &other] {
        let refused = engine.seal_audit().await.expect_err("a seal that it wrote or read is gone");
        let ChainError::Removed { seal, digest, newest } = &refused else { panic!("{refused}") };
        assert_eq!((*seal, digest, *newest), (noted.seal, &noted.digest, 0));
        let stopped = audit_chain::show(engine, &admin()).await.unwrap().stopped.expect("it has stopped");
        assert!(stopped.contains(&noted.digest), "{stopped}");
    }
    let restarted = engines.successor().await;
    engines.store().release_lease(LEASE, engines.engine.replica()).await.unwrap();
    assert_eq!(restarted.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(audit_chain::show(&restarted, &admin()).await.unwrap().stopped, None);
    assert_eq!(defect(&engines, None).await, None, "docs/security.md names this limit");
    assert_eq!(defect(&engines, Some(&noted)).await, Some((ChainDefectKind::Missing, Some(3), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn seal_that_another_one_replaced_stops_the_sealing_also_when_later_seals_exist() {
    let engines = with_three_seals().await;
    let replace = "update audit_seals set digest = previous where number = 3; insert into audit_seals select 4, 10, 10, 1, \
                   at, digest, digest, key_id, signature from audit_seals where number = 3";
    engines.execute_sql(&format!("{PERMIT} {replace}"));
    let refused = engines.engine.seal_audit().await.expect_err("seal 3 has another digest");
    assert!(matches!(refused, ChainError::Removed { seal: 3, newest: 4, .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn defects_behind_a_defect_are_found() {
    let engines = Engines::new().await;
    for _ in 0..5 {
        seal(&engines, 3).await;
    }
    let change = "update audit set actor = 'eve' where sequence in (2, 14); delete from audit_seals where number = 2; \
                  update audit_seals set at = at + 1 where number = 4; delete from audit where sequence = 8";
    engines.execute_sql(&format!("{PERMIT} {change}"));
    let expected = [
        (ChainDefectKind::Changed, Some(1), None),
        (ChainDefectKind::Missing, Some(2), None),
        (ChainDefectKind::Missing, Some(3), Some(8)),
        (ChainDefectKind::Signature, Some(4), None),
        (ChainDefectKind::Changed, Some(5), None),
    ];
    assert_eq!(defects(&engines, None).await, expected);
    let unknown = ChainHead { seal: 9, digest: "0".repeat(64) };
    let last = defects(&engines, Some(&unknown)).await.pop();
    assert_eq!(last, Some((ChainDefectKind::Missing, Some(9), None)), "the head is checked behind defects");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_defects_are_counted_and_some_described() {
    let engines = Engines::new().await;
    for _ in 0..25 {
        seal(&engines, 1).await;
    }
    engines.execute_sql(&format!("{PERMIT} update audit set actor = 'eve'"));
    let verified = verify_by(&engines.engine, None).await;
    assert_eq!((verified.defects.len(), verified.defects_found, verified.seals), (20, 25, 25));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_read_are_defects() {
    let somewhere = (ChainDefectKind::Changed, None, None);
    let numberless = vec![(ChainDefectKind::Missing, Some(2), Some(5)), (ChainDefectKind::Added, None, None)];
    for (sql, expected) in [
        ("update audit_seals set records = -1 where number = 2", vec![(ChainDefectKind::Changed, Some(2), None)]),
        ("update audit_seals set number = 'x' where number = 3", vec![somewhere]),
        ("update streams set last_sequence = -1 where stream = 'audit'", vec![somewhere]),
        ("update audit set sequence = 'x' where sequence = 5", numberless),
    ] {
        let engines = with_three_seals().await;
        engines.execute_sql(&format!("{PERMIT} {sql}"));
        assert_eq!(defects(&engines, None).await, expected, "{sql}");
        audit_chain::show(&engines.engine, &admin()).await.expect(sql);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn record_that_was_missing_when_it_was_to_be_sealed_cannot_be_added_later() {
    let engines = Engines::new().await;
    append(&engines, 3).await;
    let remove = "create table kept as select * from audit where sequence = 2; delete from audit where sequence = 2";
    engines.execute_sql(&format!("{PERMIT} {remove}"));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete, "later records are protected");
    assert_eq!(defect(&engines, None).await, Some((ChainDefectKind::Missing, Some(1), Some(2))));
    engines.execute_sql("insert into audit select * from kept");
    assert_eq!(defect(&engines, None).await, Some((ChainDefectKind::Added, Some(1), None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_record_keeps_no_later_record_from_its_seal() {
    let engines = Engines::new().await;
    append(&engines, 3).await;
    let forge = "update audit set action = 'forged' where sequence = 2";
    engines.execute_sql(&format!("{PERMIT} {forge}"));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(newest(&engines).await.map(|seal| (seal.last, seal.records)), Some((3, 2)));
    assert_eq!(defect(&engines, None).await, Some((ChainDefectKind::Changed, Some(1), Some(2))));
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
    assert_eq!(defect(&engines, None).await, Some((ChainDefectKind::Added, None, Some(1_000))));
}

#[tokio::test(flavor = "multi_thread")]
async fn seal_of_records_that_were_never_written_is_an_error() {
    let engines = with_three_seals().await;
    let forge = "insert into audit_seals select 4, 10, 1000, 991, at, digest, digest, key_id, signature from audit_seals \
                 where number = 3";
    engines.execute_sql(forge);
    let refused = engines.engine.seal_audit().await.expect_err("there are 11 records");
    assert!(matches!(refused, ChainError::Ahead { sealed: 1_000, written: 11 }), "{refused}");
    assert_eq!(defect(&engines, None).await, Some((ChainDefectKind::Signature, Some(4), None)));
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
    assert_eq!((verified.seals, verified.defects_found), (2, 0), "{verified:?}");
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
    assert_eq!((verified.seals, verified.defects_found), (2, 0));
    engines.files.is_unreadable.store(true, Ordering::Relaxed);
    let failed = audit_chain::verify(&engines.engine, &admin(), None).await.expect_err("nothing is known of the file");
    assert_eq!(failed.code(), Code::Unavailable);
    engines.files.is_unreadable.store(false, Ordering::Relaxed);
    engines.files.kept.lock().unwrap().clear();
    let missing = |seal, record| (ChainDefectKind::Missing, Some(seal), Some(record));
    assert_eq!(defects(&engines, None).await, [missing(1, 1), missing(2, 7)], "the first records of two archives");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_archive_of_records_of_two_seals_is_one_defect_and_what_follows_is_verified() {
    let engines = Engines::new().await;
    seal(&engines, 2).await;
    seal(&engines, 2).await;
    engines.later().await.retain().await.unwrap();
    seal(&engines, 2).await;
    engines.files.kept.lock().unwrap().clear();
    engines.execute_sql(&format!("{PERMIT} update audit set actor = 'eve' where sequence = 7"));
    let expected = [
        (ChainDefectKind::Missing, Some(1), Some(1)),
        // Another archive.
        (ChainDefectKind::Missing, Some(2), Some(4)),
        (ChainDefectKind::Changed, Some(3), None),
    ];
    assert_eq!(defects(&engines, None).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_whose_record_cannot_be_read_is_a_defect() {
    let engines = Engines::new().await;
    seal(&engines, 5).await;
    engines.later().await.retain().await.unwrap();
    engines.execute_sql("drop trigger archives_are_not_updated; update archives set doc = '{}'");
    let changed = |record| (ChainDefectKind::Changed, Some(1), Some(record));
    assert_eq!(defects(&engines, None).await, [changed(1), changed(5)], "the first records of two archives");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_archives_that_stay_unreadable_are_left_out_after_an_hour() {
    let engines = Engines::new().await;
    append(&engines, 5).await;
    engines.later().await.retain().await.unwrap();
    append(&engines, 2).await;
    let kept = std::mem::take(&mut *engines.files.kept.lock().unwrap());
    for minutes in [0, 30, 25] {
        engines.advance(Duration::from_secs(minutes * 60));
        let waiting = engines.engine.seal_audit().await.expect_err("the file may return");
        assert!(matches!(waiting, ChainError::Archive { record: 1, .. }), "{waiting}");
    }
    engines.advance(Duration::from_secs(10 * 60));
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    let seal = newest(&engines).await.expect("later records are protected");
    assert!(seal.first == 1 && seal.last >= 7 && seal.records < seal.last, "{seal:?}");
    let missing = |record| (ChainDefectKind::Missing, Some(1), Some(record));
    assert_eq!(defects(&engines, None).await, [missing(1), missing(5)], "the first records of two archives");
    *engines.files.kept.lock().unwrap() = kept;
    assert_eq!(defect(&engines, None).await, Some((ChainDefectKind::Added, Some(1), None)), "no seal proves them");
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
    assert_eq!((verified.seals, verified.unsealed, verified.defects_found), (2, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sealer_that_dies_after_reading_leaves_no_seal() {
    let engines = Engines::new().await;
    append(&engines, 2).await;
    // Reads the newest seal and a page of records; then begins the change.
    let (gate, came) = gate_after(2);
    let dying = engines.successor_behind(gate).await;
    let before = came.load(Ordering::SeqCst);
    let sealing = tokio::spawn(async move { dying.seal_audit().await.map(drop) });
    eventually("it does not begin its change", async || came.load(Ordering::SeqCst) > before.max(2)).await;
    sealing.abort();
    assert!(sealing.await.expect_err("it was aborted").is_cancelled());
    assert_eq!(newest(&engines).await, None);
    assert_eq!(engines.engine.seal_audit().await.unwrap(), Sealing::Complete);
    assert_eq!(newest(&engines).await.map(|seal| (seal.number, seal.last)), Some((1, 2)));
}

/// Replaces the active signing key. Returns the id of the new one.
async fn replace_key(engines: &Engines) -> String {
    let now = engines.engine.ports().clock.now();
    let entropy = engines.engine.ports().entropy.clone();
    let successor = engines.engine.keys().generate_signing_key(KeyState::Active, 2, now, &*entropy).unwrap();
    let mut tx = engines.store().begin().await.unwrap();
    let first = tx.signing_keys().await.unwrap().remove(0).key;
    tx.update_signing_key(&SigningKeyRecord { state: KeyState::Retired, version: 2, ..first }).await.unwrap();
    tx.insert_signing_key(&successor).await.unwrap();
    tx.commit().await.unwrap();
    successor.key.key_id
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_stay_valid_when_their_key_is_replaced() {
    let engines = Engines::new().await;
    seal(&engines, 2).await;
    let successor = replace_key(&engines).await;
    seal(&engines, 2).await;
    assert_eq!(newest(&engines).await.map(|seal| seal.key_id), Some(successor));
    let verified = verify_by(&engines.engine, None).await;
    assert_eq!((verified.seals, verified.defects_found), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_is_replaced_during_a_verification_is_known_to_it() {
    let engines = Engines::new().await;
    seal(&engines, 2).await;
    let (came, opened) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, waits) = (came.clone(), opened.clone());
    // Lets the first reader, which reads the keys, through; the others wait.
    let gate: Gate = Arc::new(move || {
        let (before, waits) = (counted.fetch_add(1, Ordering::SeqCst), waits.clone());
        async move {
            if before > 0 {
                drop(waits.acquire().await);
            }
            Ok::<_, StoreError>(())
        }
        .boxed()
    });
    let engine = engines.successor_behind(gate).await;
    let verifying = tokio::spawn(async move { verify_by(&engine, None).await });
    eventually("it does not read seals", async || came.load(Ordering::SeqCst) > 1).await;
    replace_key(&engines).await;
    seal(&engines, 2).await;
    opened.add_permits(1);
    let verified = verifying.await.expect("it ends");
    assert_eq!((verified.seals, verified.defects_found), (2, 0), "{verified:?}");
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
