//! Events of credentials, sessions and releases: each project's stream has those that change what its own people may list, and no more.

use gpuaas_engine::{
    Caller,
    commands::{
        artifact, project, service_account, session,
        sign_in::{self, Browser},
        token,
    },
};
use gpuaas_model::{AuditAction, EventKind, ProjectId, Role, StreamName};
use gpuaas_store::{AuditFilter, EventRecord};
use serde_json::json;

use crate::{
    engines::{Engines, admin},
    kit::KIT,
};

async fn made(engines: &Engines, name: &str) -> ProjectId {
    project::create(&engines.engine, &admin(), name.parse().unwrap()).await.unwrap().id
}

/// Creates a token of a project, or of the platform. Returns its holder.
async fn holder_in(engines: &Engines, project: Option<ProjectId>) -> Caller {
    let role = project.map_or(Role::PlatformOperator, |_| Role::Viewer);
    let new = token::NewToken { name: "ann".to_owned(), role, project, ttl_seconds: None };
    let (token, _) = token::create(&engines.engine, &admin(), new).await.expect("made");
    Caller { principal: token::holder(&token), ..admin() }
}

async fn events(engines: &Engines, stream: StreamName) -> Vec<EventRecord> {
    engines.store().read().await.unwrap().events(stream, 0, 1_000).await.unwrap()
}

fn kinds(events: &[EventRecord]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn project_gets_events_of_its_own_credentials_without_their_names() {
    let engines = Engines::new().await;
    let (ours, theirs) = (made(&engines, "ours").await, made(&engines, "theirs").await);
    let engine = &engines.engine;
    let new = |project| token::NewToken { name: "ann".to_owned(), role: Role::Viewer, project, ttl_seconds: None };
    let (token, _) = token::create(engine, &admin(), new(Some(ours))).await.expect("made");
    let name = "ci".parse().unwrap();
    service_account::create(engine, &admin(), ours, "ci".parse().unwrap(), (Role::Viewer, None)).await.expect("made");
    service_account::create_token(engine, &admin(), ours, &name, None).await.expect("made");
    service_account::delete(engine, &admin(), ours, &name).await.expect("deleted");
    let holder = Caller { principal: token::holder(&token), ..admin() };
    let begun = sign_in::with_token(engine, &holder, Browser::default()).await.expect("begun").session;
    session::revoke(engine, &holder, begun.id).await.expect("revoked");
    token::revoke(engine, &admin(), token.id).await.expect("revoked");

    let expected = [
        EventKind::TokenCreated,
        EventKind::ServiceAccountCreated,
        EventKind::TokenCreated,
        EventKind::ServiceAccountDeleted,
        EventKind::SessionCreated,
        EventKind::SessionRevoked,
        EventKind::TokenRevoked,
    ];
    let of_project = events(&engines, StreamName::Project(ours)).await;
    assert_eq!(kinds(&of_project), expected);
    assert_eq!(of_project[0].subject_id, token.id.to_string());
    assert!(of_project.iter().all(|event| event.data == json!({})), "{of_project:?}");
    assert_eq!(events(&engines, StreamName::Project(theirs)).await, [], "events of another project");
    let mut of_platform = events(&engines, StreamName::Platform).await;
    of_platform.retain(|event| expected.contains(&event.kind));
    assert_eq!(kinds(&of_platform), expected);
    assert_eq!(of_platform[0].data, json!({ "name": "ann", "role": "viewer" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn platform_credentials_and_replaced_sessions_have_no_event_on_a_foreign_stream() {
    let engines = Engines::new().await;
    let (ours, theirs) = (made(&engines, "ours").await, made(&engines, "theirs").await);
    let engine = &engines.engine;
    let (operator, tenant) = (holder_in(&engines, None).await, holder_in(&engines, Some(theirs)).await);
    sign_in::with_token(engine, &operator, Browser::default()).await.expect("begun");
    assert_eq!(events(&engines, StreamName::Project(ours)).await, []);
    // One browser: the operator signs in where the tenant was.
    let first = sign_in::with_token(engine, &tenant, Browser::default()).await.expect("begun").session;
    let browser = Browser { user_agent: None, replaces: Some(first.sha256.as_str()) };
    sign_in::with_token(engine, &operator, browser).await.expect("begun");
    let of_project = events(&engines, StreamName::Project(theirs)).await;
    assert_eq!(kinds(&of_project), [EventKind::TokenCreated, EventKind::SessionCreated, EventKind::SessionRevoked]);
    assert_eq!(events(&engines, StreamName::Project(ours)).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_another_project_replaced_is_in_the_audit_of_neither() {
    let engines = Engines::new().await;
    let (ours, theirs) = (made(&engines, "ours").await, made(&engines, "theirs").await);
    let engine = &engines.engine;
    let (mine, foreign) = (holder_in(&engines, Some(ours)).await, holder_in(&engines, Some(theirs)).await);
    // One browser: first of their project, then twice of ours.
    let first = sign_in::with_token(engine, &foreign, Browser::default()).await.expect("begun").session;
    let browser = Browser { user_agent: None, replaces: Some(first.sha256.as_str()) };
    let second = sign_in::with_token(engine, &mine, browser).await.expect("begun").session;
    let browser = Browser { user_agent: None, replaces: Some(second.sha256.as_str()) };
    sign_in::with_token(engine, &mine, browser).await.expect("begun");
    let filter = AuditFilter { action: Some(AuditAction::SessionRevoke), ..AuditFilter::default() };
    let records = engines.store().read().await.unwrap().audits(&filter).await.unwrap();
    let projects: Vec<_> = records.iter().map(|record| record.project).collect();
    assert_eq!(projects, [None, Some(ours)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_release_is_announced_to_every_project_without_its_source() {
    let engines = Engines::new().await;
    let projects = [made(&engines, "ours").await, made(&engines, "theirs").await];
    let release = artifact::VerifiedRelease {
        app: KIT.to_owned(),
        version: "1".to_owned(),
        files: vec![("kit.tar".to_owned(), "0".repeat(64), 1)],
        source: "https://internal.example/releases".to_owned(),
        stand_in: true,
    };
    artifact::record(&engines.engine, &admin(), release).await.expect("recorded");
    for project in projects {
        let of_project = events(&engines, StreamName::Project(project)).await;
        assert_eq!(kinds(&of_project), [EventKind::ArtifactImported]);
        assert_eq!(of_project[0].subject_id, format!("{KIT}/1"));
        assert_eq!(of_project[0].data, json!({ "app": KIT, "version": "1", "stand_in": true }));
    }
}
