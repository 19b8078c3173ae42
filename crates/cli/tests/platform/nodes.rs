//! Nodes through the API.

use std::collections::BTreeMap;

use gpuaas_api_types::{EnrollNode, RegisterNode};
use gpuaas_client::ClientError;

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
