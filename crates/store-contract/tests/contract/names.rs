//! Names are unique.

use gpuaas_model::{ArtifactId, Lifecycle, VerifiedBy};
use gpuaas_store::{ArtifactRecord, Page, StoreError};

use super::{
    database::{Database, run_concurrently},
    given,
};

fn assert_taken<T: std::fmt::Debug>(outcome: Result<T, StoreError>, kind: &str, wanted: &str) {
    match outcome {
        Err(StoreError::NameTaken { what, name }) => assert_eq!((what, name.as_str()), (kind, wanted)),
        other => panic!("expected that {kind} {wanted} is taken: {other:?}"),
    }
}

pub(crate) async fn a_project_name_is_taken_once(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&given::project("ada")).await.unwrap();
    assert_taken(tx.insert_project(&given::project("ada")).await, "project", "ada");
    tx.commit().await.expect("a refusal leaves the change usable");
    assert_eq!(store.read().await.unwrap().projects(None, &Page::default()).await.unwrap().len(), 1);
    assert!(database.sql("insert into projects (id, name, doc) values ('x', 'ada', '{}')").await.is_err());
}

pub(crate) async fn a_node_name_is_taken_once(database: Database) {
    let store = database.open().await;
    let mut tx = store.begin().await.unwrap();
    let node = given::node("gpu-1");
    tx.insert_node(&node).await.unwrap();
    assert_taken(tx.insert_node(&given::node("gpu-1")).await, "node", "gpu-1");
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.node_by_name("gpu-1").await.unwrap(), Some(node));
    assert_eq!(reader.node_by_name("gpu-2").await.unwrap(), None);
}

pub(crate) async fn workload_name_is_unique_in_its_project_until_decommissioned(database: Database) {
    let store = database.open().await;
    let (project, first) = given::workload_in_project(&store, "train").await;
    let other_project = given::project("other");
    let mut tx = store.begin().await.unwrap();
    assert_taken(tx.insert_workload(&given::workload(&project, "train")).await, "workload", "train");
    tx.insert_project(&other_project).await.unwrap();
    tx.insert_workload(&given::workload(&other_project, "train")).await.expect("another project has its own names");
    let mut gone = first.clone();
    gone.lifecycle = Lifecycle::Decommissioned;
    tx.update_workload(&gone).await.unwrap();
    let second = given::workload(&project, "train");
    tx.insert_workload(&second).await.expect("the name is free again");
    assert_taken(tx.insert_workload(&given::workload(&project, "train")).await, "workload", "train");
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let found = reader.workload_by_name(project.id, "train").await.unwrap();
    assert_eq!(found.map(|found| found.id), Some(second.id));
    assert_eq!(reader.projects_with_workload("train", 9).await.unwrap(), [other_project.name.clone(), project.name]);
    assert_eq!(reader.projects_with_workload("train", 1).await.unwrap(), [other_project.name]);
    assert_eq!(reader.projects_with_workload("infer", 9).await.unwrap(), []);
    drop(reader);
    let copy = format!(
        "insert into workloads (id, project_id, name, app, lifecycle, health, revision, doc) \
         select 'x', project_id, name, app, 'running', health, 1, doc from workloads where id = '{}'",
        second.id
    );
    database.sql(&copy).await.expect_err("the database itself refuses a second one");
}

pub(crate) async fn an_artifact_is_imported_once_and_other_bytes_under_its_name_are_refused(database: Database) {
    let store = database.open().await;
    let artifact = given::artifact("1");
    let again = ArtifactRecord { id: ArtifactId::from_uuid(given::uuid()), ..artifact.clone() };
    let other = ArtifactRecord { sha256: given::digest(), ..again.clone() };
    let mut tx = store.begin().await.unwrap();
    tx.insert_artifacts(std::slice::from_ref(&artifact)).await.unwrap();
    tx.insert_artifacts(&[again.clone()]).await.expect("the same bytes change nothing");
    assert_taken(tx.insert_artifacts(&[other]).await, "artifact", "rke2 1 of rke2.tar.zst");
    tx.commit().await.unwrap();
    assert_eq!(store.read().await.unwrap().release("rke2", "1").await.unwrap(), [artifact.clone()]);

    let by = |by: VerifiedBy| ArtifactRecord { verified_by: Some(by), ..again.clone() };
    let key = VerifiedBy::Key("0123456789ABCDEF".into());
    for (verified_by, kept) in [
        (VerifiedBy::Nothing, None),
        (key.clone(), Some(key.clone())),
        (VerifiedBy::Nothing, Some(key.clone())),
        (VerifiedBy::SumsSha256(given::digest()), Some(key)),
    ] {
        let mut tx = store.begin().await.unwrap();
        tx.insert_artifacts(&[by(verified_by)]).await.unwrap();
        tx.commit().await.unwrap();
        let known = store.read().await.unwrap().release("rke2", "1").await.unwrap();
        assert_eq!(known, [ArtifactRecord { verified_by: kept, ..artifact.clone() }], "the first verification is kept");
    }
}

pub(crate) async fn one_of_many_concurrent_inserts_of_a_name_succeeds(database: Database) {
    let (one, other) = (database.open().await, database.open().await);
    let outcomes = run_concurrently(12, |index| {
        let store = if index % 2 == 0 { one.clone() } else { other.clone() };
        async move {
            let mut tx = store.begin().await?;
            tx.insert_node(&given::node("gpu-1")).await?;
            tx.commit().await
        }
    })
    .await;
    let (kept, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(kept.len(), 1);
    refused.into_iter().for_each(|outcome| assert_taken(outcome, "node", "gpu-1"));
}
