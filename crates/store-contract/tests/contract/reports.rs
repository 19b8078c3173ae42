//! Reports of controllers, and the accounts and tokens that are bound to one workload.

use gpuaas_model::{Role, ServiceAccountId};
use gpuaas_store::{ServiceAccountRecord, Store, TokenRecord, WorkloadRecord, WorkloadReportRecord};

use super::{
    database::{Database, NOW},
    given,
};

fn report(workload: &WorkloadRecord, sequence: u64) -> WorkloadReportRecord {
    WorkloadReportRecord {
        workload: workload.id,
        account: ServiceAccountId::from_uuid(given::uuid()),
        by: "service-account/watcher".into(),
        generation: 1,
        sequence: Some(sequence),
        content: "0".repeat(64),
        since: NOW,
        reported_at: NOW,
    }
}

async fn workloads(store: &Store) -> [WorkloadRecord; 2] {
    let project = given::project("lab");
    let workloads = ["train", "infer"].map(|name| given::workload(&project, name));
    let mut tx = store.begin().await.unwrap();
    tx.insert_project(&project).await.unwrap();
    for workload in &workloads {
        tx.insert_workload(workload).await.unwrap();
    }
    tx.commit().await.unwrap();
    workloads
}

pub(crate) async fn a_report_replaces_the_one_before_and_is_verified_and_dumped(database: Database) {
    let store = database.open().await;
    let [train, infer] = workloads(&store).await;
    let newer = report(&train, 2);
    for of in [&report(&train, 1), &newer] {
        let mut tx = store.begin().await.unwrap();
        tx.put_workload_report(of).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.workload_report(train.id).await.unwrap(), Some(newer));
    assert_eq!(reader.workload_report(infer.id).await.unwrap(), None);
    drop(reader);
    store.read_every_row().await.unwrap();
    let mut dump = Vec::new();
    store.dump(&mut dump).await.unwrap();
    assert!(String::from_utf8(dump).unwrap().contains("workload_reports"));
}

pub(crate) async fn a_report_is_forgotten_alone(database: Database) {
    let store = database.open().await;
    let [train, infer] = workloads(&store).await;
    let kept = report(&infer, 1);
    let mut tx = store.begin().await.unwrap();
    tx.put_workload_report(&report(&train, 1)).await.unwrap();
    tx.put_workload_report(&kept).await.unwrap();
    // A second time changes nothing.
    tx.delete_workload_report(train.id).await.unwrap();
    tx.delete_workload_report(train.id).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.workload_report(train.id).await.unwrap(), None);
    assert_eq!(reader.workload_report(infer.id).await.unwrap(), Some(kept));
}

pub(crate) async fn account_and_token_of_a_controller_keep_their_workload(database: Database) {
    let store = database.open().await;
    let [train, _] = workloads(&store).await;
    let (role, workload) = (Role::AppController, Some(train.id));
    let account = ServiceAccountRecord { role, workload, ..given::service_account(train.project, "watcher") };
    let (project, service_account) = (Some(train.project), Some(account.id));
    let token = TokenRecord { project, service_account, workload, ..given::token(role) };
    let mut tx = store.begin().await.unwrap();
    tx.insert_service_account(&account).await.unwrap();
    tx.insert_token(&token).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    assert_eq!(reader.service_account_by_name(train.project, &account.name).await.unwrap(), account);
    assert_eq!(reader.token_by_sha256(&token.sha256).await.unwrap(), Some(token));
}
