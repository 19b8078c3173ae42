//! Retention: the engine deletes old history from the database after archiving it, and keeps the rows that are still needed.

use std::sync::atomic::Ordering;

use gpuaas_model::{ArchiveKind, AuditAction, Code, OperationState, StreamName, Timestamp, TokenId};
use gpuaas_store::{AuditFilter, IdempotencyRecord, OperationFilter, Page};
use serde_json::Value;

use crate::{kit::task, nodes::failed, site::Site};

/// Returns the archived records under this name, such as `operation` or `event`.
fn lines(site: &Site, name: &str) -> Vec<Value> {
    let files = site.engines.files.kept.lock().unwrap();
    let lines = files.values().flat_map(|file| file.lines());
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines.filter_map(|line| line.get(name).cloned()).collect()
}

/// Runs a deployment that fails and an operation that resumes it. Returns the ids of both.
async fn history(site: &Site) -> [gpuaas_model::OperationId; 2] {
    site.engines.nodes.end_tasks([failed(Code::ClusterNotReady, "no readiness")]);
    let first = site.deploy_and_wait(|of| vec![task("install", of, 0)]).await;
    let second = site.resume_and_wait(first.workload.id).await;
    assert_eq!(second.operation.state, OperationState::Succeeded);
    [first.operation.id, second.operation.id]
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_archived_before_deletion_and_newest_entries_stay() {
    let site = Site::of(1).await;
    let [first, second] = history(&site).await;
    let before = site.engines.store().read().await.unwrap().events(StreamName::Platform, 0, 1_000).await.unwrap();
    site.engines.engine.retain().await.unwrap();
    assert!(site.engines.files.kept.lock().unwrap().is_empty(), "nothing is old enough");

    let later = site.engines.later().await;
    later.retain().await.unwrap();
    let mut reader = site.engines.store().read().await.unwrap();
    let left = reader.operations(&OperationFilter::default()).await.unwrap();
    assert_eq!(left.iter().map(|of| of.id).collect::<Vec<_>>(), [second], "the newest of a workload stays");
    assert_eq!(lines(&site, "operation").iter().map(|of| of["id"].clone()).collect::<Vec<_>>(), [first.to_string()]);
    let tasks = lines(&site, "task");
    assert!(tasks.iter().any(|of| of["operation"] == first.to_string() && of["envelope"].is_string()), "{tasks:?}");
    assert!(lines(&site, "step").iter().all(|of| of["operation"] == first.to_string()));
    // Every event except the newest of its stream is archived exactly once; only archived events are deleted.
    let events = reader.events(StreamName::Platform, 0, 1_000).await.unwrap();
    let newest = before.last().map_or(0, |event| event.sequence);
    assert_eq!(events.first().map(|event| event.sequence), Some(newest));
    let of_platform = lines(&site, "event").into_iter().filter(|event| event["stream"] == "platform");
    let archived: Vec<u64> = of_platform.filter_map(|event| event["sequence"].as_u64()).collect();
    assert_eq!(archived, (1..newest).collect::<Vec<_>>());
    // The audit continues after its archived records, and records the archives.
    let audit = reader.audits(&AuditFilter::default()).await.unwrap();
    let archives = reader.archives(None, &Page::default()).await.unwrap();
    let recorded = audit.iter().filter(|record| record.action == AuditAction::ArchiveCreate).count();
    assert!(recorded > 0 && recorded <= archives.len(), "{recorded} of {}", archives.len());
    let of_audit: Vec<u64> = lines(&site, "audit").iter().filter_map(|record| record["sequence"].as_u64()).collect();
    assert_eq!(of_audit, (1..audit[0].sequence).collect::<Vec<_>>());
    drop(reader);

    // The remaining rows suffice for the workload's state and its next operation.
    let kept = site.engines.files.kept.lock().unwrap().len();
    later.retain().await.unwrap();
    assert_eq!(site.engines.files.kept.lock().unwrap().len(), kept, "nothing is archived twice");
    let ended = site.decommission_and_wait(left[0].workload, |of| vec![task("uninstall", of, 0)]).await;
    assert_eq!(ended.operation.state, OperationState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_responses_under_idempotency_keys_are_deleted() {
    let site = Site::of(1).await;
    let token = TokenId::from_uuid(uuid::Uuid::from_u128(7));
    // Responses are kept for a day.
    let created_at = Timestamp::from_millis(site.engines.engine.ports().clock.now().as_millis() - 23 * 3_600_000);
    let answer = IdempotencyRecord {
        token,
        key: "deploy-1".into(),
        request_sha256: String::new(),
        status: 202,
        body: String::new(),
        created_at,
    };
    let mut tx = site.engines.store().begin().await.unwrap();
    tx.put_idempotency(&answer, None).await.unwrap();
    tx.commit().await.unwrap();
    let is_kept =
        async || site.engines.store().read().await.unwrap().idempotency(token, "deploy-1").await.unwrap().is_some();
    site.engines.engine.retain().await.unwrap();
    assert!(is_kept().await, "it is not old enough");
    site.engines.later().await.retain().await.unwrap();
    assert!(!is_kept().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_not_deleted_when_its_archive_fails() {
    let site = Site::of(1).await;
    history(&site).await;
    site.engines.files.is_full.store(true, Ordering::Relaxed);
    let later = site.engines.later().await;
    later.retain().await.expect_err("no file can be written");
    let mut reader = site.engines.store().read().await.unwrap();
    assert_eq!(reader.operations(&OperationFilter::default()).await.unwrap().len(), 2);
    assert_eq!(reader.archives(None, &Page::default()).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_file_without_row_is_reused() {
    let site = Site::of(1).await;
    history(&site).await;
    site.engines.files.dies_after.store(true, Ordering::Relaxed);
    let later = site.engines.later().await;
    later.retain().await.expect_err("it died before the row");
    let orphans: Vec<String> = site.engines.files.kept.lock().unwrap().keys().cloned().collect();
    assert_eq!(orphans.len(), 1);
    later.retain().await.unwrap();
    let archives = site.engines.store().read().await.unwrap().archives(None, &Page::default()).await.unwrap();
    let operations = archives.iter().filter(|archive| archive.kind == ArchiveKind::Operations);
    assert_eq!(operations.map(|archive| archive.sha256.clone()).collect::<Vec<_>>(), orphans);
    assert_eq!(lines(&site, "operation").len(), 1);
}
