use std::sync::Arc;

use gpuaas_model::{Coded, CorrelationId, OperationId, Principal, Role, ServiceAccountId, Timestamp, TokenId};
use gpuaas_store::{Store, StoreOptions};
use gpuaas_test_support::{DatabaseFile, ManualClock};
use uuid::Uuid;

use super::*;

const AT: Timestamp = Timestamp::from_millis(1);

fn project(number: u128, name: &str) -> ProjectRecord {
    let id = ProjectId::from_uuid(Uuid::from_u128(number));
    ProjectRecord { id, name: name.parse().unwrap(), created_at: AT, deleted_at: None }
}

/// A workload whose id begins with the eight digits of `beginning`.
fn workload(project: ProjectId, beginning: u32, name: &str) -> WorkloadRecord {
    let id = WorkloadId::from_uuid(Uuid::from_u128(u128::from(beginning) << 96));
    let release = ("rke2".to_owned(), "1".to_owned());
    WorkloadRecord::requested(id, project, name.parse().unwrap(), release, "accepted".to_owned(), AT)
}

fn caller(role: Role, project: ProjectId, workload: Option<WorkloadId>) -> Caller {
    let principal = Principal {
        token: TokenId::from_uuid(Uuid::from_u128(5)),
        name: "service-account/watcher".to_owned(),
        role,
        project: Some(project),
        service_account: Some(ServiceAccountId::from_uuid(Uuid::from_u128(6))),
        workload,
    };
    Caller {
        principal,
        correlation: CorrelationId::from_uuid(Uuid::from_u128(7)),
        is_dry_run: false,
        expected_plan: None,
        session: None,
    }
}

#[tokio::test]
async fn controller_finds_its_workload_and_no_other_by_name_id_or_beginning() {
    let database = DatabaseFile::new();
    let options = StoreOptions { url: database.url() };
    let store = Store::open(&options, Arc::new(ManualClock::default())).await.unwrap();
    let (ours, theirs) = (project(1, "ours"), project(2, "theirs"));
    let (own, other) = (workload(ours.id, 0xabcd_0001, "train"), workload(ours.id, 0xabcd_0002, "infer"));
    let mut tx = store.begin().await.unwrap();
    for project in [&ours, &theirs] {
        tx.insert_project(project).await.unwrap();
    }
    for workload in [&own, &other] {
        tx.insert_workload(workload).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let controller = caller(Role::AppController, ours.id, Some(own.id));
    let id = own.id.to_string();
    for key in ["train", id.as_str(), &id.to_uppercase(), "abcd0001", "ABCD", &id[..13]] {
        for project in [None, Some("ours")] {
            let found = super::workload(&mut reader, &controller, project, key).await;
            assert_eq!(found.unwrap_or_else(|_| panic!("{key} is found")).id, own.id, "{key}");
        }
    }
    let (other_id, absent) = (other.id.to_string(), Uuid::from_u128(77).to_string());
    for key in ["infer", other_id.as_str(), "abcd0002", "absent", absent.as_str(), "", "abc"] {
        let Err(refused) = super::workload(&mut reader, &controller, None, key).await else { panic!("{key} is found") };
        let cause = refused.cause();
        assert_eq!((cause.code(), cause.to_string()), (Code::NotFound, format!("there is no workload {key}")));
    }
    assert!(super::workload(&mut reader, &controller, Some("theirs"), "train").await.is_err());
    let viewer = caller(Role::Viewer, ours.id, None);
    assert_eq!(super::workload(&mut reader, &viewer, None, "infer").await.map(|of| of.id).ok(), Some(other.id));
    // Without its workload, which no token that the platform issues lacks, it finds none.
    let unbound = caller(Role::AppController, ours.id, None);
    assert!(super::workload(&mut reader, &unbound, None, "train").await.is_err() && only_visible(&unbound).is_err());
    assert_eq!(only_visible(&controller).ok(), Some(Some(own.id)));
    assert_eq!(only_visible(&viewer).ok(), Some(None));
    // The beginning of an id would show which others begin so.
    let begun = super::id::<OperationId>(&mut reader, &controller, IdKind::Operation, "abcd").await;
    let Err(refused) = begun else { panic!("an operation is found") };
    assert_eq!(refused.cause().code(), Code::NotFound);
    let whole = super::id::<OperationId>(&mut reader, &controller, IdKind::Operation, &absent).await;
    assert!(whole.is_ok(), "whether it may see the operation is decided by its workload");
}
