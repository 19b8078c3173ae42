//! Audit records of refused changes.

use gpuaas_api_types::{AuditEntry, CreateProject, ImportRelease};
use gpuaas_client::AuditQuery;
use http::Method;

use crate::{
    raw::send,
    world::{Platform, eventually, token_request},
};

const JSON: (&str, &str) = ("content-type", "application/json");

/// Starts a platform with a viewer. Returns it with the viewer's `Authorization` value.
async fn started() -> (Platform, String) {
    let platform = tokio::task::block_in_place(|| Platform::start(0));
    platform.client().create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let ask = token_request("viewer", "viewer", Some("ours"));
    let bearer = format!("Bearer {}", platform.client().create_token(&ask).await.expect("made").secret);
    (platform, bearer)
}

async fn records(platform: &Platform) -> Vec<AuditEntry> {
    let records = platform.client().list_audit(&AuditQuery::default()).await.expect("records").items;
    records.into_iter().filter(|record| record.actor == "viewer" && record.result == "refused").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_keeps_a_refusal_out_of_the_audit() {
    let (platform, bearer) = started().await;
    let headers = [("authorization", bearer.as_str()), JSON];
    for query in ["", "?dry_run=true", "?x=dry_run", "?project=dry_run"] {
        let path = format!("/api/v1/projects{query}");
        assert_eq!(send(&platform, Method::POST, &path, &headers, "{\"name\":\"x\"}").await.status, 403, "{query}");
    }
    assert_eq!(records(&platform).await.len(), 4);
    let dry = send(&platform, Method::POST, "/api/v1/workloads?dry_run", &headers, "{}").await;
    assert_eq!((dry.status, records(&platform).await.len()), (403, 4), "a dry run is recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_names_what_was_attempted_and_a_refused_read_of_a_journal_is_recorded() {
    let (platform, bearer) = started().await;
    platform.client().create_project(&CreateProject { name: "ours".into() }).await.expect_err("its name is taken");
    let headers = [("authorization", bearer.as_str()), JSON];
    let path = "/api/v1/workloads/train/members/server-1/logs";
    assert!(send(&platform, Method::GET, path, &headers[..1], "").await.status >= 400);
    let import = ImportRelease {
        app: "rke2".to_owned(),
        version: Some("v1".to_owned()),
        source: "/x".to_owned(),
        sums_sha256: None,
        signature: None,
    };
    platform.client().import_artifacts(&import).await.expect_err("there is no such folder");
    // Without the permission no handler reads the body.
    for (path, body) in [
        ("/api/v1/projects", r#"{ "name": "theirs" }"#),
        ("/api/v1/workloads/train/operations", r#"{ "app": "rke2", "kind": "stop" }"#),
        ("/api/v1/projects", "no JSON"),
    ] {
        assert_eq!(send(&platform, Method::POST, path, &headers, body).await.status, 403, "{path}");
    }
    let records = platform.client().list_audit(&AuditQuery::default()).await.expect("records").items;
    let refused: Vec<_> = (records.iter().filter(|record| record.result == "refused"))
        .map(|record| (record.action.as_str(), record.target.as_str()))
        .collect();
    let expected = [
        ("project.create", "project/ours"),
        ("logs.read", "workload/train"),
        ("artifact.import", "release/rke2/v1"),
        ("project.create", "project/theirs"),
        ("operation.start", "workload/train"),
        ("project.create", "project"),
    ];
    assert_eq!(refused, expected);
    let started = records.iter().find(|record| record.action == "operation.start").expect("a record");
    assert_eq!((&started.metadata["code"], &started.metadata["kind"]), (&"forbidden".into(), &"stop".into()));
    assert!(records.iter().any(|record| record.metadata["code"] == "name_taken"), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_refusals_is_recorded_in_few_records_and_none_is_lost() {
    let (platform, bearer) = started().await;
    let headers = [("authorization", bearer.as_str()), JSON];
    for _ in 0..200 {
        assert_eq!(send(&platform, Method::POST, "/api/v1/projects", &headers, "{}").await.status, 403);
    }
    let summed = async || {
        let records = records(&platform).await;
        let counted = records.iter().filter_map(|record| record.metadata["count"].as_u64());
        let single = records.iter().filter(|record| record.action == "project.create").count() as u64;
        (counted.sum::<u64>() + single, records.len())
    };
    eventually("not every refusal is recorded", async || summed().await.0 == 200).await;
    let (_, records) = summed().await;
    assert!((21..150).contains(&records), "{records} records");
}
