//! Requests for another project's resources by id: each command answers that they do not exist, whatever its callers have checked.

use gpuaas_engine::{
    Caller, CommandError, Seen,
    commands::{access, logs, placement, project, service_account, token, workload},
};
use gpuaas_model::{Code, Coded, Health, Lifecycle, Principal, Progress, ProjectId, Recovery, Role, WorkloadId};
use gpuaas_store::{Page, WorkloadRecord};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{World, admin};

/// An admin of the project: the role with the most permissions there.
fn admin_of(project: ProjectId) -> Caller {
    let known = admin();
    let principal = Principal { role: Role::ProjectAdmin, project: Some(project), ..known.principal };
    Caller { principal, ..known }
}

async fn made(world: &World, name: &str) -> ProjectId {
    project::create(&world.engine, &admin(), name.parse().unwrap()).await.unwrap().id
}

async fn workload_of(world: &World, project: ProjectId) -> WorkloadId {
    let now = world.engine.ports().clock.now();
    let record = WorkloadRecord {
        id: WorkloadId::from_uuid(Uuid::from_u128(70)),
        project,
        name: "train".parse().unwrap(),
        app: "rke2".to_owned(),
        version: "1".to_owned(),
        intent: json!({}),
        config: json!({}),
        lifecycle: Lifecycle::Running,
        phase: "running".to_owned(),
        progress: Progress::default(),
        health: Health::Healthy,
        recovery: Recovery::None,
        fault: None,
        endpoint: None,
        facts: Default::default(),
        generation: 1,
        observed_generation: 1,
        revision: 1,
        created_at: now,
        updated_at: now,
    };
    let mut tx = world.store().begin().await.unwrap();
    tx.insert_workload(&record).await.unwrap();
    tx.commit().await.unwrap();
    record.id
}

fn is_absent(asked: &str, id: impl std::fmt::Display, answer: Result<impl Sized, CommandError>) {
    let refused = answer.err().unwrap_or_else(|| panic!("{asked} shows what another project has"));
    let kind = if asked.contains("project") { "project" } else { "workload" };
    assert_eq!(refused.to_string(), CommandError::not_found(kind, id).to_string(), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_project_is_absent_to_every_command_that_names_one() {
    let world = World::new().await;
    let (ours, theirs) = (made(&world, "ours").await, made(&world, "theirs").await);
    let (engine, stranger) = (&world.engine, admin_of(theirs));
    let ci = || "ci".parse().unwrap();
    service_account::create(engine, &admin(), ours, ci(), Role::Viewer).await.expect("made");

    let new = token::NewToken { name: "t".to_owned(), role: Role::Viewer, project: Some(ours), ttl_seconds: None };
    is_absent("a token of a project", ours, token::create(engine, &stranger, new).await);
    let robot = service_account::create(engine, &stranger, ours, "cd".parse().unwrap(), Role::Viewer).await;
    is_absent("a project's new account", ours, robot);
    is_absent("a project's accounts", ours, service_account::list(engine, &stranger, ours, &Page::default()).await);
    let made = service_account::create_token(engine, &stranger, ours, &ci(), None).await;
    is_absent("a token of a project's account", ours, made);
    is_absent("a project's account", ours, service_account::delete(engine, &stranger, ours, &ci()).await);
    is_absent("a project's nodes", ours, placement::options(engine, &stranger, ours, "rke2", &Page::default()).await);
    let ask = || workload::Deploy {
        project: ours,
        app: "rke2".to_owned(),
        version: None,
        name: "mine".parse().unwrap(),
        intent: Value::Null,
        config: Value::Null,
    };
    is_absent("deploying in a project", ours, workload::deploy(engine, &stranger, ask()).await);
    is_absent("a plan in a project", ours, workload::preview_deploy(engine, &stranger, ask()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_projects_workload_is_absent_to_every_command_that_names_one() {
    let world = World::new().await;
    let (ours, theirs) = (made(&world, "ours").await, made(&world, "theirs").await);
    let (engine, stranger, id) = (&world.engine, admin_of(theirs), workload_of(&world, ours).await);
    let seen = Seen::Whatever;

    is_absent("adding members", id, workload::add_member(engine, &stranger, id, &seen, Value::Null).await);
    is_absent("a plan", id, workload::preview_add_member(engine, &stranger, id, &seen, Value::Null).await);
    is_absent("decommissioning", id, workload::decommission(engine, &stranger, id, &seen).await);
    is_absent("resuming", id, workload::resume(engine, &stranger, id, &seen).await);
    is_absent("the way to it", id, access::describe(engine, &stranger, id).await);
    is_absent("a kubeconfig", id, access::deliver(engine, &stranger, id, access::AccessAsk::default()).await);
    is_absent("a journal", id, logs::open(engine, &stranger, id, "server-1", None).await);
    access::describe(engine, &admin_of(ours), id).await.expect("its own people see it");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_makes_a_token_that_may_do_more_than_he_may() {
    let world = World::new().await;
    let maker = admin_of(made(&world, "ours").await);
    for role in [Role::PlatformAdmin, Role::PlatformOperator] {
        let new = token::NewToken { name: "t".to_owned(), role, project: None, ttl_seconds: None };
        let refused = token::create(&world.engine, &maker, new).await.expect_err("it may do more");
        assert_eq!((refused.code(), refused.field().as_deref()), (Code::Forbidden, Some("role")), "{role}");
    }
}
