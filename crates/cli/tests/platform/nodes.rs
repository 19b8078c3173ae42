//! Nodes through the API.

use std::collections::BTreeMap;

use gpuaas_api_types::{CreateAllocation, CreateProject, EnrollNode, RegisterNode};
use gpuaas_client::ClientError;

use crate::world::{Platform, token_request};

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

#[tokio::test(flavor = "multi_thread")]
async fn the_allocation_of_a_node_is_shown_to_the_platform_and_to_its_holder_alone() {
    let platform = Platform::start(2);
    let admin = platform.client();
    for name in ["ml", "others"] {
        admin.create_project(&CreateProject { name: name.into() }).await.expect("made");
    }
    let ask = CreateAllocation { project: "ml".into(), node: "demo-1".into() };
    let allocation = admin.create_allocation(&ask).await.expect("made").id;
    let with = async |role: &str, project: Option<&str>| {
        let name = format!("{role} of {}", project.unwrap_or("the platform"));
        let token = admin.create_token(&token_request(&name, role, project)).await.expect("made");
        platform.client_with(&token.secret)
    };
    for client in [platform.client(), with("platform-operator", None).await] {
        let listed = client.list_nodes(None, None).await.expect("nodes").items;
        let held = listed.iter().find(|node| node.name == "demo-1").and_then(|node| node.allocation.as_ref());
        let held = held.expect("the allocation that holds it");
        assert_eq!((held.id.as_str(), held.project_name.as_str()), (allocation.as_str(), "ml"));
        assert_eq!((&held.workload, &held.member, &held.component), (&None, &None, &None));
        let free = listed.iter().find(|node| node.name == "demo-2").expect("it is listed");
        assert!(free.allocation.is_none(), "{:?}", free.allocation);
    }
    let holder = with("viewer", Some("ml")).await;
    let held = holder.get_node("demo-1").await.expect("its node").allocation.expect("its allocation");
    assert_eq!(held.id, allocation);
    let stranger = with("project-admin", Some("others")).await;
    assert_eq!(stranger.get_node("demo-1").await.map_err(code).expect_err("of another project"), "not_found");
    assert!(stranger.list_allocations(None, None).await.expect("a list").items.is_empty());
    for tenant in [holder, stranger] {
        assert_eq!(tenant.list_nodes(None, None).await.map_err(code).expect_err("a list of the platform"), "forbidden");
    }
}
