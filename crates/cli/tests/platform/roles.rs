//! Every role calls every operation: permitted calls, forbidden calls, and resources that look absent.

use gpuaas_api_types::{CreateProject, CreateToken};
use gpuaas_client::ClientError;
use gpuaas_model::{Permission, Role};
use http::Method;
use serde_json::json;

use crate::{
    operations::{Operation, operations},
    raw::{HttpResponse, send},
    world::{Platform, token_request},
};

/// A caller of the API.
pub(crate) struct Caller {
    pub(crate) name: String,
    /// Absent for a caller without a token.
    pub(crate) role: Option<Role>,
    pub(crate) bearer: Option<String>,
}

/// Returns true if `docs/roles.md` grants the permission. The test compares the code with the page, not with itself.
fn is_documented(role: Role, permission: Permission) -> bool {
    let page = include_str!("../../../../docs/roles.md");
    let row = |first: &str| -> Vec<&str> {
        let mut rows = page.lines().map(|line| line.split('|').map(str::trim).skip(1).collect::<Vec<_>>());
        rows.find(|row| row.first() == Some(&first)).expect("a row of the first table")
    };
    let column = row("permission").iter().position(|called| *called == role.as_str()).expect("a column");
    row(&format!("`{permission}`"))[column] == "✓"
}

async fn ask(platform: &Platform, operation: &Operation, who: &Caller, query: &str) -> HttpResponse {
    let path = format!("{}{query}", operation.path_with_unused_ids());
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(who.bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let body = if operation.method == Method::GET { "" } else { "{}" };
    send(platform, operation.method.clone(), &path, &headers, body).await
}

/// Roles of people: `controllers.rs` tests those that act for one workload.
fn roles() -> impl Iterator<Item = Role> {
    Role::ALL.iter().copied().filter(|role| !role.is_of_workload())
}

/// Returns one caller of each role in the project `ours`, an admin of the project `theirs`, and one without a token.
async fn all_callers(platform: &Platform) -> Vec<Caller> {
    let client = platform.client();
    for project in ["ours", "theirs"] {
        client.create_project(&CreateProject { name: project.to_owned() }).await.expect("made");
    }
    let mut everybody = Vec::new();
    let of_each = roles().map(|role| (role, "ours")).chain([(Role::ProjectAdmin, "theirs")]);
    for (role, project) in of_each {
        let called = format!("{role} of {project}");
        let project = (!role.is_of_platform()).then(|| project.to_owned());
        let asked = CreateToken { name: called.clone(), role: role.to_string(), project, ttl_seconds: Some(600) };
        let secret = client.create_token(&asked).await.expect("a token").secret;
        everybody.push(Caller { name: called, role: Some(role), bearer: Some(format!("Bearer {secret}")) });
    }
    everybody.push(Caller { name: "no token".to_owned(), role: None, bearer: None });
    everybody
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_has_exactly_the_documented_permissions_on_every_route() {
    let platform = Platform::start(0);
    let (everybody, operations) = (all_callers(&platform).await, operations());
    let mut cells = 0;
    for operation in &operations {
        for who in &everybody {
            let answer = ask(&platform, operation, who, "").await;
            let cell = format!("{} as {}: {answer:?}", operation.name, who.name);
            match (operation.needs, who.role) {
                // Public reads: 200, or 404 where the resource does not exist.
                (None, _) if operation.method == Method::GET => assert!([200, 404].contains(&answer.status), "{cell}"),
                // Open to all callers: refused because of the empty body, not because of the caller.
                (None, _) => assert_eq!((answer.status, answer.code()), (400, "body_invalid"), "{cell}"),
                (Some(_), None) => assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "{cell}"),
                (Some(needed), Some(role)) if !is_documented(role, needed) => {
                    assert_eq!((answer.status, answer.code()), (403, "forbidden"), "{cell}");
                    assert!(answer.body["detail"].as_str().expect("a text").ends_with(needed.as_str()), "{cell}");
                }
                (Some(_), Some(role)) if operation.name == "whoami" => {
                    let documented = Permission::ALL.iter().filter(|permission| is_documented(role, **permission));
                    let documented: Vec<&str> = documented.map(|permission| permission.as_str()).collect();
                    assert_eq!(answer.body["permissions"], json!(documented), "{cell}");
                }
                // Permitted, but refused later: no next sealing key exists here.
                (Some(_), Some(_)) if operation.name == "rotate_sealing_key" => {
                    assert_eq!((answer.status, answer.code()), (409, "sealing_key_not_on_all_replicas"), "{cell}");
                }
                (Some(_), Some(_)) => assert!([200, 201, 202, 400, 404].contains(&answer.status), "{cell}"),
            }
            cells += 1;
        }
    }
    println!("    roles × routes: {cells} cells of {} operations", operations.len());
    assert_eq!(cells, operations.len() * (roles().count() + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_another_project_looks_absent() {
    let platform = Platform::start(0);
    let everybody = all_callers(&platform).await;
    let other_admin = everybody.iter().find(|who| who.name == "project-admin of theirs").expect("one");
    let mut asked = 0;
    for operation in operations().iter().filter(|operation| operation.takes_project) {
        if !operation.needs.is_some_and(|needed| Role::ProjectAdmin.allows(needed)) {
            continue;
        }
        let ours = ask(&platform, operation, other_admin, "?project=ours").await;
        let none = ask(&platform, operation, other_admin, "?project=none").await;
        assert_eq!(ours.status, none.status, "{}: {ours:?} {none:?}", operation.name);
        if operation.method == Method::GET {
            assert_eq!((ours.status, ours.code()), (404, "not_found"), "{}: {ours:?}", operation.name);
        }
        let plain = |answer: &HttpResponse, project: &str| {
            let mut body = answer.body.clone();
            body.as_object_mut().expect("a problem").remove("correlation_id");
            body.to_string().replace(project, "PROJECT")
        };
        assert_eq!(plain(&ours, "ours"), plain(&none, "none"), "{}", operation.name);
        asked += 1;
    }
    assert!(asked >= 5, "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn project_admin_creates_tokens_only_of_its_own_project_and_roles() {
    let platform = Platform::start(0);
    let everybody = all_callers(&platform).await;
    let admin = everybody.iter().find(|who| who.name == "project-admin of ours").expect("one");
    let client =
        platform.client_with(admin.bearer.as_deref().and_then(|text| text.strip_prefix("Bearer ")).expect("one"));
    let make = |role: &str, project: Option<&str>| token_request("robot", role, project);
    let made = client.create_token(&make("project-member", None)).await.expect("in the caller's own project");
    for (role, project, expected) in [
        ("platform-admin", None, ("forbidden", Some("role"))),
        ("platform-operator", Some("ours"), ("forbidden", Some("role"))),
        ("viewer", Some("theirs"), ("not_found", None)),
    ] {
        let ClientError::Problem(refused) = client.create_token(&make(role, project)).await.expect_err(role) else {
            panic!("{role}: expected a problem document")
        };
        assert_eq!((refused.code.as_str(), refused.field.as_deref()), expected, "{role}: {refused:?}");
    }
    let listed = client.list_tokens(None).await.expect("listed").items;
    assert!(listed.iter().all(|token| token.project == made.token.project), "{listed:?}");
    let theirs = platform.client().list_tokens(None).await.expect("listed").items;
    let theirs = theirs.iter().find(|token| token.name == "project-admin of theirs").expect("one");
    let of_one = platform.client().list_tokens(Some("theirs".into())).await.expect("listed").items;
    assert!(of_one.iter().any(|token| token.id == theirs.id), "{of_one:?}");
    assert!(of_one.iter().all(|token| token.project == theirs.project), "{of_one:?}");
    assert_eq!(client.revoke_token(&theirs.id).await.expect_err("it looks absent").exit() as u8, 3);
    client.revoke_token(&made.token.id).await.expect("its own");
    let revoked = platform.client_with(&made.secret).whoami().await.expect_err("refused at once");
    assert_eq!(revoked.exit() as u8, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_request_needs_the_permission_of_get() {
    let platform = Platform::start(0);
    let everybody = all_callers(&platform).await;
    let mut asked = 0;
    for operation in operations().iter().filter(|operation| operation.method == Method::GET) {
        for who in &everybody {
            let whole = ask(&platform, operation, who, "").await;
            let headers = who.bearer.as_deref().map(|bearer| ("authorization", bearer));
            let head = send(&platform, Method::HEAD, &operation.path_with_unused_ids(), headers.as_slice(), "").await;
            assert_eq!(head.status, whole.status, "{} as {}", operation.name, who.name);
            asked += 1;
        }
    }
    assert!(asked > 100, "{asked}");
}
