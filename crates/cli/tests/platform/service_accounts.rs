//! Service accounts of a project and their tokens.

use gpuaas_api_types::{CreateProject, CreateServiceAccount, CreateServiceAccountToken};
use gpuaas_client::{AuditQuery, Client, ClientError};

use crate::world::{Platform, token_request};

fn code(error: ClientError) -> (String, Option<String>) {
    match error {
        ClientError::Problem(problem) => (problem.code, problem.field),
        other => (other.to_string(), None),
    }
}

fn refused(code: &str) -> (String, Option<String>) {
    (code.to_owned(), None)
}

fn about(code: &str, field: &str) -> (String, Option<String>) {
    (code.to_owned(), Some(field.to_owned()))
}

fn account(name: &str, role: &str) -> CreateServiceAccount {
    CreateServiceAccount { name: name.into(), role: role.into(), workload: None, project: None }
}

async fn person(platform: &Platform, project: &str, role: &str) -> Client {
    let ask = token_request(&format!("{role}-{project}"), role, Some(project));
    let created = platform.client().create_token(&ask).await.expect("made");
    assert!(created.token.expires_at.is_some(), "the token has no expiry");
    platform.client_with(&created.secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_acts_under_its_own_name_until_it_is_deleted() {
    let platform = Platform::start(0);
    let root = platform.client();
    for name in ["ours", "theirs"] {
        root.create_project(&CreateProject { name: name.into() }).await.expect("made");
    }
    let admin = person(&platform, "ours", "project-admin").await;
    let made = admin.create_service_account(&account("ci", "project-member")).await.expect("made");
    let again = admin.create_service_account(&account("ci", "viewer")).await.map_err(code);
    assert_eq!(again.expect_err("taken"), about("name_taken", "name"));
    let ask = CreateServiceAccountToken { ttl_seconds: Some(600) };
    let token = admin.create_service_account_token(None, "ci", &ask).await.expect("made");
    let program = platform.client_with(&token.secret);
    let me = program.whoami().await.expect("me");
    assert_eq!((me.name.as_str(), me.role.as_str()), ("service-account/ci", "project-member"));
    assert_eq!(me.project, Some(made.project));
    let beyond = program.create_project(&CreateProject { name: "x".into() }).await.map_err(code);
    assert_eq!(beyond.expect_err("a member creates no projects"), refused("forbidden"));
    let audit = root.list_audit(&AuditQuery::default()).await.expect("records").items;
    assert!(audit.iter().any(|record| record.actor == "service-account/ci" && record.result == "refused"));

    let other_admin = person(&platform, "theirs", "project-admin").await;
    let foreign = other_admin.delete_service_account(Some("ours".into()), "ci").await.map_err(code);
    assert_eq!(foreign.expect_err("another's"), refused("not_found"));
    assert!(other_admin.list_service_accounts(None).await.expect("own").items.is_empty());
    assert_eq!(admin.list_service_accounts(None).await.expect("own").items.len(), 1);

    admin.delete_service_account(None, "ci").await.expect("deleted");
    assert_eq!(program.whoami().await.map_err(code).expect_err("deleted"), refused("unauthenticated"));
    let gone = admin.create_service_account_token(None, "ci", &ask).await.map_err(code);
    assert_eq!(gone.expect_err("deleted"), refused("not_found"));
    admin.create_service_account(&account("ci", "viewer")).await.expect("its name is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_cannot_create_credentials() {
    let platform = Platform::start(0);
    platform.client().create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let admin = person(&platform, "ours", "project-admin").await;
    admin.create_service_account(&account("ci", "project-admin")).await.expect("made");
    let made = admin.create_service_account_token(None, "ci", &CreateServiceAccountToken::default()).await;
    let program = platform.client_with(&made.expect("made").secret);
    let ask = token_request("t", "viewer", None);
    assert_eq!(program.create_token(&ask).await.map_err(code).expect_err("no"), refused("forbidden"));
    let another = program.create_service_account(&account("cd", "viewer")).await.map_err(code);
    assert_eq!(another.expect_err("no"), refused("forbidden"));
    let again = program.create_service_account_token(None, "ci", &CreateServiceAccountToken::default()).await;
    assert_eq!(again.map_err(code).expect_err("no token for itself"), refused("forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_service_account_is_refused_with_its_field() {
    let platform = Platform::start(0);
    platform.client().create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let admin = person(&platform, "ours", "project-admin").await;
    let member = person(&platform, "ours", "project-member").await;
    let above = admin.create_service_account(&account("ci", "platform-admin")).await.map_err(code);
    assert_eq!(above.expect_err("no role of a project"), about("field_invalid", "role"));
    let nameless = admin.create_service_account(&account("C I", "viewer")).await.map_err(code);
    assert_eq!(nameless.expect_err("no name"), about("field_invalid", "name"));
    let unasked = member.create_service_account(&account("ci", "viewer")).await.map_err(code);
    assert_eq!(unasked.expect_err("no right"), refused("forbidden"));
    admin.create_service_account(&account("ci", "viewer")).await.expect("made");
    for ttl in [0, 31 * 24 * 3_600, u64::MAX] {
        let ask = CreateServiceAccountToken { ttl_seconds: Some(ttl) };
        let made = admin.create_service_account_token(None, "ci", &ask).await.map_err(code);
        assert_eq!(made.expect_err("too short or too long"), about("field_invalid", "ttl_seconds"));
    }
    let hour = admin.create_service_account_token(None, "ci", &CreateServiceAccountToken::default()).await;
    assert!(hour.expect("made").token.expires_at.is_some());
    let ask = token_request("service-account/ci", "viewer", None);
    assert_eq!(admin.create_token(&ask).await.map_err(code).expect_err("reserved"), about("field_invalid", "name"));
}
