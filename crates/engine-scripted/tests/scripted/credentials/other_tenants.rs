//! Requests for another project's resources by id: each command answers that they do not exist, whatever its callers have checked.

use gpuaas_engine::{
    Caller, CommandError, Precondition,
    commands::{access, diff, logs, placement, project, service_account, token, workload},
};
use gpuaas_model::{Code, Coded, Health, Lifecycle, OperationKind, Principal, ProjectId, Role, WorkloadId};
use gpuaas_planner::OperationRequest;
use gpuaas_store::{Page, WorkloadRecord};
use serde_json::Value;
use uuid::Uuid;

use crate::engines::{Engines, admin};

/// An admin of the project: the role with the most permissions there.
fn admin_of(project: ProjectId) -> Caller {
    let known = admin();
    let principal = Principal { role: Role::ProjectAdmin, project: Some(project), ..known.principal };
    Caller { principal, ..known }
}

async fn made(engines: &Engines, name: &str) -> ProjectId {
    project::create(&engines.engine, &admin(), name.parse().unwrap()).await.unwrap().id
}

async fn workload_of(engines: &Engines, project: ProjectId) -> WorkloadId {
    let (id, now) = (WorkloadId::from_uuid(Uuid::from_u128(70)), engines.engine.ports().clock.now());
    let release = ("rke2".to_owned(), "1".to_owned());
    let record = WorkloadRecord {
        lifecycle: Lifecycle::Running,
        health: Health::Healthy,
        observed_generation: 1,
        ..WorkloadRecord::requested(id, project, "train".parse().unwrap(), release, "running".to_owned(), now)
    };
    let mut tx = engines.store().begin().await.unwrap();
    tx.insert_workload(&record).await.unwrap();
    tx.commit().await.unwrap();
    record.id
}

fn assert_not_found(request: &str, id: impl std::fmt::Display, answer: Result<impl Sized, CommandError>) {
    let refused = answer.err().unwrap_or_else(|| panic!("{request} reveals another project"));
    let kind = if request.contains("project") { "project" } else { "workload" };
    assert_eq!(refused.to_string(), CommandError::not_found(kind, id).to_string(), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_project_is_not_found_by_any_command() {
    let engines = Engines::new().await;
    let (ours, theirs) = (made(&engines, "ours").await, made(&engines, "theirs").await);
    let (engine, other_tenant) = (&engines.engine, admin_of(theirs));
    let ci = || "ci".parse().unwrap();
    service_account::create(engine, &admin(), ours, ci(), (Role::Viewer, None)).await.expect("made");

    let new = token::NewToken { name: "t".to_owned(), role: Role::Viewer, project: Some(ours), ttl_seconds: None };
    assert_not_found("a token of a project", ours, token::create(engine, &other_tenant, new).await);
    let robot = service_account::create(engine, &other_tenant, ours, "cd".parse().unwrap(), (Role::Viewer, None)).await;
    assert_not_found("a project's new account", ours, robot);
    assert_not_found(
        "a project's accounts",
        ours,
        service_account::list(engine, &other_tenant, ours, &Page::default()).await,
    );
    let made = service_account::create_token(engine, &other_tenant, ours, &ci(), None).await;
    assert_not_found("a token of a project's account", ours, made);
    assert_not_found("a project's account", ours, service_account::delete(engine, &other_tenant, ours, &ci()).await);
    assert_not_found(
        "a project's nodes",
        ours,
        placement::options(engine, &other_tenant, ours, "rke2", &Page::default()).await,
    );
    let ask = || workload::Deploy {
        project: ours,
        app: "rke2".to_owned(),
        version: None,
        name: "mine".parse().unwrap(),
        intent: Value::Null,
        config: Value::Null,
    };
    assert_not_found("deploying in a project", ours, workload::deploy(engine, &other_tenant, ask()).await);
    assert_not_found("a plan in a project", ours, workload::preview_deploy(engine, &other_tenant, ask()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_of_another_project_is_not_found_by_any_command() {
    let engines = Engines::new().await;
    let (ours, theirs) = (made(&engines, "ours").await, made(&engines, "theirs").await);
    let (engine, other_tenant, id) = (&engines.engine, admin_of(theirs), workload_of(&engines, ours).await);
    let seen = Precondition::Any;

    assert_not_found("adding members", id, workload::add_member(engine, &other_tenant, id, &seen, Value::Null).await);
    assert_not_found("a plan", id, workload::preview_add_member(engine, &other_tenant, id, &seen, Value::Null).await);
    assert_not_found("decommissioning", id, workload::decommission(engine, &other_tenant, id, &seen).await);
    let request = OperationRequest::of(OperationKind::Upgrade);
    let preview = workload::preview_operation(engine, &other_tenant, id, &seen, &request).await;
    assert_not_found("a plan of an operation", id, preview);
    assert_not_found("an operation", id, workload::start_operation(engine, &other_tenant, id, &seen, request).await);
    assert_not_found("resuming", id, workload::resume(engine, &other_tenant, id, &seen).await);
    let preview = workload::preview_resume(engine, &other_tenant, id, &seen).await;
    assert_not_found("a plan of resuming", id, preview);
    let preview = workload::preview_decommission(engine, &other_tenant, id, &seen).await;
    assert_not_found("a plan of decommissioning", id, preview);
    assert_not_found("a comparison", id, diff::compare(engine, &other_tenant, id).await);
    assert_not_found("a description of access", id, access::describe(engine, &other_tenant, id).await);
    assert_not_found(
        "a kubeconfig",
        id,
        access::deliver(engine, &other_tenant, id, access::DeliveryRequest::default()).await,
    );
    assert_not_found("a journal", id, logs::open(engine, &other_tenant, id, "server-1", None).await);
    let selection = logs::LogSelection::default();
    assert_not_found("logs", id, logs::open_workload(engine, &other_tenant, id, &selection).await);
    access::describe(engine, &admin_of(ours), id).await.expect("its own admin sees it");
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_cannot_create_a_token_with_more_permissions() {
    let engines = Engines::new().await;
    let maker = admin_of(made(&engines, "ours").await);
    for role in [Role::PlatformAdmin, Role::PlatformOperator] {
        let new = token::NewToken { name: "t".to_owned(), role, project: None, ttl_seconds: None };
        let refused = token::create(&engines.engine, &maker, new).await.expect_err("the role has more permissions");
        assert_eq!((refused.code(), refused.field().as_deref()), (Code::Forbidden, Some("role")), "{role}");
    }
}
