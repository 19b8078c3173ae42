//! Projects, tokens and nodes through the API.

use std::collections::BTreeMap;

use gpuaas_api_types::{CreateAllocation, CreateProject, CreateToken, EnrollNode, RegisterNode};
use gpuaas_client::{AuditQuery, ClientError};

use crate::world::Platform;

fn code(error: ClientError) -> String {
    match error {
        ClientError::Problem(problem) => problem.code,
        other => other.to_string(),
    }
}

fn machine(name: &str) -> RegisterNode {
    RegisterNode { name: name.to_owned(), region: None, labels: BTreeMap::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_projects_look_absent_and_platform_operations_need_an_admin() {
    let platform = Platform::start(2);
    let admin = platform.client();
    assert_eq!(admin.whoami().await.expect("me").role, "platform-admin");
    for name in ["one", "two"] {
        admin.create_project(&CreateProject { name: name.into() }).await.expect("made");
    }
    let twice = admin.create_project(&CreateProject { name: "one".into() }).await.map_err(code);
    assert_eq!(twice.expect_err("taken"), "name_taken");
    let ask = CreateToken {
        name: "of-one".into(),
        role: "project-member".into(),
        project: Some("one".into()),
        ttl_seconds: None,
    };
    let created = admin.create_token(&ask).await.expect("made");
    let member = platform.client_with(&created.secret);
    let projects = member.list_projects().await.expect("own").items;
    assert_eq!(projects.iter().map(|project| project.name.as_str()).collect::<Vec<_>>(), ["one"]);
    assert_eq!(
        member.create_project(&CreateProject { name: "x".into() }).await.map_err(code).expect_err("no"),
        "forbidden"
    );
    let ask = CreateAllocation { project: "two".into(), node: "demo-1".into() };
    assert_eq!(member.create_allocation(&ask).await.map_err(code).expect_err("no"), "forbidden");
    let theirs = admin.create_allocation(&ask).await.expect("made").id;
    assert_eq!(admin.get_allocation(&theirs).await.expect("the admin's").id, theirs);
    assert_eq!(member.get_allocation(&theirs).await.map_err(code).expect_err("another's"), "not_found");
    assert!(member.list_allocations(None, None).await.expect("own").items.is_empty());
    let foreign = member.list_allocations(Some("two".into()), None).await.map_err(code);
    assert_eq!(foreign.expect_err("another's"), "not_found");
    assert_eq!(member.get_node("demo-1").await.map_err(code).expect_err("another's"), "not_found");
    let records = admin.list_audit(&AuditQuery::default()).await.expect("records").items;
    let refused: Vec<(&str, &str)> = records
        .iter()
        .filter(|record| record.actor == "of-one" && record.result == "refused")
        .map(|record| (record.action.as_str(), record.metadata["code"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(refused, [("project.create", "forbidden"), ("allocation.create", "forbidden")]);
    let listed = admin.list_tokens(None).await.expect("tokens").items;
    assert!(listed.iter().any(|token| token.id == created.token.id));
    admin.revoke_token(&created.token.id).await.expect("revoked");
    assert_eq!(member.whoami().await.map_err(code).expect_err("revoked"), "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_answers_a_ping_and_its_events_are_on_the_platform_stream() {
    let platform = Platform::start(1);
    let admin = platform.client();
    let ping = admin.ping_node("demo-1").await.expect("an answer");
    assert_eq!(ping.task.state, "succeeded");
    // A key of hex digits can be a name and the beginning of an id: both are looked up.
    let begins = &ping.task.node[..8];
    assert_eq!(admin.ping_node(begins).await.expect("an answer").task.node, ping.task.node);
    assert_eq!(admin.ping_node("c3b9").await.map_err(code).expect_err("absent"), "not_found");
    assert_eq!(admin.delete_project("c3b9").await.map_err(code).expect_err("absent"), "not_found");
    let kinds: Vec<String> =
        admin.list_events(None, 0).await.expect("events").items.into_iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&"node.enrolled".to_owned()), "{kinds:?}");
    let registered = admin.register_node(&machine("gpu-01")).await.expect("registered");
    let newer = admin.issue_enrollment("gpu-01", &EnrollNode::default()).await.expect("issued");
    assert_ne!(registered.enrollment.string, newer.enrollment.string);
    let nodes = admin.list_nodes(Some("registered".into()), None).await.expect("nodes").items;
    assert_eq!(nodes.len(), 1);
}
