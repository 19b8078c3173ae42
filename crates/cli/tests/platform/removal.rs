//! Nodes are retired and deleted, empty projects are deleted, and their history stays.

use gpuaas_api_types::{CreateAllocation, CreateProject, CreateServiceAccount, RegisterNode};
use gpuaas_client::{AuditQuery, Client, ClientError};

use crate::world::{Platform, eventually, token_request};

/// Returns code, detail and next action of a refusal.
fn parts(error: ClientError) -> (String, String, String) {
    match error {
        ClientError::Problem(problem) => (problem.code, problem.detail, problem.next.unwrap_or_default()),
        other => (other.to_string(), String::new(), String::new()),
    }
}

async fn audited(client: &Client, query: AuditQuery) -> Vec<(String, String)> {
    let records = client.list_audit(&query).await.expect("records").items;
    records.into_iter().map(|record| (record.action, record.result)).collect()
}

async fn kinds(client: &Client) -> Vec<String> {
    client.list_events(None, 0).await.expect("events").items.into_iter().map(|event| event.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_node_loses_its_identity_and_its_name_is_free_after_the_deletion() {
    let platform = Platform::start(1);
    let client = platform.client();
    eventually("the node does not become active", async || {
        client.get_node("demo-1").await.is_ok_and(|node| node.state == "active" && node.connectivity == "connected")
    })
    .await;
    let project = client.create_project(&CreateProject { name: "ml".into() }).await.expect("made");
    let ask = CreateAllocation { project: "ml".into(), node: "demo-1".into() };
    let allocation = client.create_allocation(&ask).await.expect("allocated");
    eventually("the allocation does not become active", async || {
        client.get_allocation(&allocation.id).await.is_ok_and(|allocation| allocation.state == "active")
    })
    .await;

    let (code, detail, next) = parts(client.retire_node("demo-1").await.expect_err("a project holds it"));
    assert_eq!(code, "allocation_in_use");
    assert!(detail.contains(&allocation.id) && next.contains("gpuaas allocation release"), "{detail} {next}");
    let (code, detail, next) = parts(client.delete_project("ml").await.expect_err("it has an allocation"));
    assert_eq!(code, "state_conflict");
    assert!(detail.contains(&format!("allocation {}", allocation.id)), "{detail}");
    assert!(next.contains("gpuaas allocation release"), "{next}");
    client.release_allocation(&allocation.id).await.expect("released");

    let (code, _, next) = parts(client.delete_node("demo-1").await.expect_err("it is not retired"));
    assert_eq!((code.as_str(), next.as_str()), ("state_conflict", "retire it first: gpuaas node retire demo-1"));
    let node = client.get_node("demo-1").await.expect("a node");
    let printed = platform.gpuaas(&["node", "retire", "demo-1", "--yes"]);
    let (result, message) = (String::from_utf8_lossy(&printed.stdout), String::from_utf8_lossy(&printed.stderr));
    assert_eq!((&*result, &*message), ("Node demo-1 is retired.\n", "delete it: gpuaas node delete demo-1\n"));
    eventually("the retired node stays connected", async || {
        client.get_node("demo-1").await.is_ok_and(|node| node.connectivity != "connected")
    })
    .await;
    assert_eq!(parts(client.retire_node("demo-1").await.expect_err("already")).0, "state_conflict");
    let (_, _, next) = parts(client.issue_enrollment("demo-1", &Default::default()).await.expect_err("retired"));
    assert!(next.contains("gpuaas node delete demo-1"), "{next}");

    let deleted = platform.json(&["node", "delete", "demo-1", "--yes"]);
    assert_eq!(deleted["id"], node.id.as_str());
    for key in ["demo-1", node.id.as_str()] {
        assert_eq!(parts(client.get_node(key).await.expect_err("deleted")).0, "not_found", "{key}");
        assert_eq!(parts(client.delete_node(key).await.expect_err("deleted")).0, "not_found", "{key}");
    }
    assert!(client.list_nodes(None, None).await.expect("a list").items.is_empty());
    let past = client.get_allocation(&allocation.id).await.expect("history");
    assert_eq!((past.node_name.as_str(), past.state.as_str()), ("demo-1", "released"));
    client.register_node(&RegisterNode { name: "demo-1".into(), ..RegisterNode::default() }).await.expect("free");

    client.delete_project(&project.id).await.expect("it is empty");
    let past = client.get_allocation(&allocation.id).await.expect("history");
    assert_eq!(past.project_name, "ml");
    assert_eq!(client.list_allocations(None, None).await.expect("history").items.len(), 1);
    let of_node =
        AuditQuery { target: Some("node/demo-1".into()), actor: Some("developer".into()), ..AuditQuery::default() };
    let of_node = audited(&client, of_node).await;
    for (action, result) in [
        ("node.retire", "refused"),
        ("node.retire", "accepted"),
        ("node.delete", "refused"),
        ("node.delete", "accepted"),
    ] {
        assert!(of_node.contains(&(action.to_owned(), result.to_owned())), "{action} {result}: {of_node:?}");
    }
    let kinds = kinds(&client).await;
    for kind in ["node.state_changed", "node.deleted", "project.deleted"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind}: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn project_is_deleted_when_it_is_empty_and_its_audit_stays() {
    let platform = Platform::start(0);
    let client = platform.client();
    let project = client.create_project(&CreateProject { name: "ml".into() }).await.expect("made");
    let ask = token_request("ann", "project-admin", Some("ml"));
    let token = client.create_token(&ask).await.expect("made");
    let admin = platform.client_with(&token.secret);
    let ask = CreateServiceAccount { name: "ci".into(), role: "auditor".into(), workload: None, project: None };
    admin.create_service_account(&ask).await.expect("made");
    assert_eq!(parts(admin.delete_project("ml").await.expect_err("a tenant may not")).0, "forbidden");

    let refused = platform.gpuaas(&["project", "delete", "ml", "--yes"]);
    let printed = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(5), "{printed}");
    assert!(
        printed.contains("service account ci") && printed.contains(&format!("token {}", token.token.id)),
        "{printed}"
    );
    admin.delete_service_account(None, "ci").await.expect("deleted");
    client.revoke_token(&token.token.id).await.expect("revoked");
    let printed = platform.gpuaas(&["project", "delete", "ml", "--yes"]);
    assert_eq!(String::from_utf8(printed.stdout).expect("text").trim(), "Project ml is deleted.");

    assert!(client.list_projects().await.expect("a list").items.iter().all(|one| one.name != "ml"));
    for key in ["ml", project.id.as_str()] {
        let ask = token_request("bob", "viewer", Some(key));
        assert_eq!(parts(client.create_token(&ask).await.expect_err("deleted")).0, "not_found", "{key}");
    }
    let tokens = client.list_tokens(None).await.expect("tokens of the deleted project, too").items;
    assert!(tokens.iter().any(|one| one.id == token.token.id && one.project_name.as_deref() == Some("ml")));
    let next = client.create_project(&CreateProject { name: "ml".into() }).await.expect("its name is free");
    assert_ne!(next.id, project.id);
    let of_deleted = audited(&client, AuditQuery { project: Some(project.id), ..AuditQuery::default() }).await;
    for action in ["project.create", "service_account.create", "token.revoke", "project.delete"] {
        assert!(of_deleted.contains(&(action.to_owned(), "accepted".to_owned())), "{action}: {of_deleted:?}");
    }
    let of_next = audited(&client, AuditQuery { project: Some("ml".into()), ..AuditQuery::default() }).await;
    assert_eq!(of_next, [("project.create".to_owned(), "accepted".to_owned())]);
}
