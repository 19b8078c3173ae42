//! Actors in audit records.

use gpuaas_api_types::{AuditEntry, CreateProject, CreateServiceAccount, CreateServiceAccountToken, CreatedToken};
use gpuaas_client::{AuditQuery, Client, ClientError};

use crate::world::{Platform, token_request};

async fn token(platform: &Platform, name: &str, project: &str) -> CreatedToken {
    let ask = token_request(name, "project-admin", Some(project));
    platform.client().create_token(&ask).await.expect("made")
}

fn account(name: &str) -> CreateServiceAccount {
    CreateServiceAccount { name: name.into(), role: "viewer".into(), workload: None, project: None }
}

async fn records(client: &Client) -> Vec<AuditEntry> {
    client.list_audit(&AuditQuery::default()).await.expect("records").items
}

fn problem_parts(error: ClientError) -> (String, Option<String>, String) {
    match error {
        ClientError::Problem(problem) => (problem.code, problem.field, problem.detail),
        other => (other.to_string(), None, String::new()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_distinguishes_actors_with_equal_names() {
    let platform = tokio::task::block_in_place(|| Platform::start(0));
    let root = platform.client();
    let mut made = Vec::new();
    for project in ["ours", "theirs"] {
        root.create_project(&CreateProject { name: project.into() }).await.expect("made");
        // Also the name of the platform's own admin, which `gpuaas dev` creates.
        let created = token(&platform, "developer", project).await;
        let client = platform.client_with(&created.secret);
        client.create_service_account(&account("ci")).await.expect("made");
        client.create_project(&CreateProject { name: "more".into() }).await.expect_err("refused");
        made.push((created.token, client));
    }
    let all = records(&root).await;
    for (token, client) in &made {
        let own: Vec<_> = all.iter().filter(|record| record.actor_id.as_ref() == Some(&token.id)).collect();
        let seen: Vec<_> = own.iter().map(|record| (record.action.as_str(), record.result.as_str())).collect();
        assert_eq!(seen, [("service_account.create", "accepted"), ("project.create", "refused")], "{own:?}");
        assert!(own.iter().all(|record| record.actor == "developer" && record.project == token.project), "{own:?}");
        let account = client.list_service_accounts(None).await.expect("listed").items.remove(0);
        let ask = CreateServiceAccountToken::default();
        let program = client.create_service_account_token(None, "ci", &ask).await.expect("made");
        let refused = platform.client_with(&program.secret).create_project(&CreateProject { name: "x".into() }).await;
        refused.expect_err("refused");
        let all = records(&root).await;
        let of_program: Vec<_> =
            all.iter().filter(|record| record.actor_id.as_ref() == Some(&program.token.id)).collect();
        assert_eq!(of_program.len(), 1, "{of_program:?}");
        assert_eq!(of_program[0].service_account, Some(account.id), "{of_program:?}");
    }
    let is_own = |record: &&AuditEntry| record.actor_type == "control_plane";
    assert!(
        all.iter().any(|record| is_own(&record)) && all.iter().filter(is_own).all(|record| record.actor_id.is_none())
    );
    let others = all.iter().filter(|record| record.actor == "developer" && record.action == "project.create");
    let ids: std::collections::BTreeSet<_> = others.map(|record| record.actor_id.clone()).collect();
    assert_eq!(ids.len(), 3, "the administrator and both others");

    let table = platform.gpuaas(&["audit", "list", "--action", "service_account.create"]);
    let table = String::from_utf8(table.stdout).expect("text");
    for (token, _) in &made {
        let end = token.id.rsplit('-').next().expect("an end");
        assert_eq!(table.matches(&format!("developer  {end}  ")).count(), 1, "{table}");
        let listed = platform.json(&["audit", "list", "--action", "service_account.create"]).to_string();
        assert!(listed.contains(&format!("\"actor_id\":\"{}\"", token.id)), "{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_actor_names_are_refused() {
    let platform = tokio::task::block_in_place(|| Platform::start(0));
    let root = platform.client();
    root.create_project(&CreateProject { name: "ours".into() }).await.expect("made");
    let admin = platform.client_with(&token(&platform, "ann", "ours").await.secret);
    for name in
        ["control-plane", "Control-Plane", "control_plane", "control-plane/local", "local", "operator", "node/gpu-1"]
    {
        let ask = token_request(name, "viewer", None);
        let (code, field, detail) = problem_parts(admin.create_token(&ask).await.expect_err(name));
        assert_eq!((code.as_str(), field.as_deref()), ("field_invalid", Some("name")), "{name}");
        assert!(detail.contains(name) && detail.contains("reserved"), "{detail}");
    }
    for name in ["control-plane", "local", "bootstrap", "several"] {
        let (code, field, detail) = problem_parts(admin.create_service_account(&account(name)).await.expect_err(name));
        assert_eq!((code.as_str(), field.as_deref()), ("field_invalid", Some("name")), "{name}");
        assert!(detail.contains("reserved"), "{detail}");
    }
    let refused = platform.gpuaas(&["token", "create", "control-plane", "--role", "viewer", "--project", "ours"]);
    let reported = String::from_utf8(refused.stderr).expect("text");
    assert!(refused.status.code() == Some(2) && reported.contains("control-plane is reserved"), "{reported}");
    let refused = platform.gpuaas(&["token", "create", "o\u{200b}ps", "--role", "viewer", "--project", "ours"]);
    let reported = String::from_utf8(refused.stderr).expect("text");
    assert!(refused.status.code() == Some(2) && reported.contains("character 2 is U+200B"), "{reported}");
}
