//! Deleted nodes and projects: their names are free, and their history stays.

use std::time::Duration;

use gpuaas_model::{AllocationState, Connectivity, Lifecycle, NodeState, ProjectId, Role};
use gpuaas_store::{AllocationRecord, NodeFilter, NodeRecord, Page, StoreError, TokenRecord, WorkloadRecord};

use super::{
    database::{Database, NOW},
    given,
};

pub(crate) async fn deleted_node_gives_back_its_name_and_keeps_its_history(database: Database) {
    let store = database.open().await;
    let (_, node, allocation) = given::allocated_node(&store, "gpu-1").await;
    let mut tx = store.begin().await.unwrap();
    let gone = NodeRecord { state: NodeState::Retired, deleted_at: Some(NOW), ..node.clone() };
    let gone = tx.update_node(&gone).await.unwrap();
    tx.commit().await.unwrap();

    let mut reader = store.read().await.unwrap();
    assert!(reader.node_by_name("gpu-1").await.unwrap().is_none(), "a deleted node is found by its name");
    assert_eq!(reader.nodes(&NodeFilter::default()).await.unwrap(), []);
    assert_eq!(reader.every_node(|_| true).await.unwrap(), []);
    assert_eq!(reader.node_counts().await.unwrap().get(&Connectivity::Connected), None);
    assert_eq!(reader.node(node.id).await.unwrap(), gone);
    let next = given::node("gpu-1");
    let mut tx = store.begin().await.unwrap();
    tx.insert_node(&next).await.unwrap();
    tx.commit().await.unwrap();
    let again = NodeRecord { deleted_at: Some(NOW), ..next.clone() };
    let mut tx = store.begin().await.unwrap();
    tx.update_node(&again).await.expect("two nodes of one name can be deleted");
    tx.insert_node(&given::node("gpu-1")).await.unwrap();
    tx.commit().await.unwrap();
    let names = store.read().await.unwrap().node_names([node.id, next.id]).await.unwrap();
    assert_eq!(names.values().map(|name| name.as_str()).collect::<Vec<_>>(), ["gpu-1", "gpu-1"]);
    assert_eq!(store.read().await.unwrap().allocation(allocation.id).await.unwrap().node, node.id);
    store.read_every_row().await.unwrap();
}

pub(crate) async fn deleted_project_gives_back_its_name(database: Database) {
    let store = database.open().await;
    let project = given::project("ml");
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&project).await.unwrap();
    let deleted = tx.delete_project(&project, NOW).await.unwrap();
    assert_eq!((deleted.deleted_at, deleted.name.as_str()), (Some(NOW), "ml"));
    tx.insert_project(&given::project("ml")).await.expect("its name is free");
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert!(matches!(reader.project(project.id).await, Err(StoreError::NotFound { .. })));
    assert_ne!(reader.project_by_name("ml").await.unwrap().unwrap().id, project.id);
    let names = reader.project_names([project.id]).await.unwrap();
    assert_eq!(names.get(&project.id).map(|name| name.as_str()), Some("ml"), "history shows the name");
    assert_eq!(reader.projects(None, &Page::default()).await.unwrap().len(), 1);
    assert_eq!(reader.projects(Some(project.id), &Page::default()).await.unwrap(), []);
    store.read_every_row().await.unwrap();
}

pub(crate) async fn contents_of_a_project_are_what_it_still_uses(database: Database) {
    let store = database.open().await;
    let (project, node, held) = given::allocated_node(&store, "gpu-1").await;
    let workload = given::workload(&project, "train");
    let other = given::project("other");
    let account = given::service_account(project.id, "ci");
    let expires_at = Some(NOW.plus(Duration::from_secs(5)));
    let of = |service_account| TokenRecord {
        project: Some(project.id),
        expires_at,
        service_account,
        ..given::token(Role::ProjectAdmin)
    };
    let (token, of_account) = (of(None), of(Some(account.id)));
    let mut tx = store.begin().await.unwrap();
    tx.insert_workload(&workload).await.unwrap();
    tx.insert_project(&other).await.unwrap();
    tx.insert_token(&token).await.unwrap();
    tx.insert_service_account(&account).await.unwrap();
    tx.insert_token(&of_account).await.unwrap();
    tx.commit().await.unwrap();
    let named = [
        "workload train".to_owned(),
        format!("allocation {}", held.id),
        "service account ci".to_owned(),
        format!("token {}", token.id),
    ];
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.project_contents(project.id, NOW, 9).await.unwrap(), named);
    assert_eq!(reader.project_contents(project.id, NOW, 1).await.unwrap().len(), 1);
    assert_eq!(reader.project_contents(other.id, NOW, 9).await.unwrap(), [] as [String; 0]);
    assert_eq!(reader.project_contents(ProjectId::from_uuid(given::uuid()), NOW, 9).await.unwrap().len(), 0);
    drop(reader);

    let mut tx = store.begin().await.unwrap();
    let ended = WorkloadRecord { lifecycle: Lifecycle::Decommissioned, ..workload };
    tx.update_workload(&ended).await.unwrap();
    let released = AllocationRecord { state: AllocationState::Released, ..held };
    tx.update_allocation(&released).await.unwrap();
    tx.delete_service_account(&account, NOW).await.unwrap();
    tx.commit().await.unwrap();
    let later = NOW.plus(Duration::from_secs(6));
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.project_contents(project.id, later, 9).await.unwrap(), [] as [String; 0]);
    assert_eq!(reader.node(node.id).await.unwrap().name, node.name);
}
