//! Impossible placements: one answer lists every reason, and nothing is changed.

use gpuaas_api_types::{CreateAllocation, CreateProject, Deploy};
use gpuaas_client::ClientError;
use gpuaas_model::AllocationId;
use serde_json::{Value, json};

use crate::world::{PROJECT, Platform, eventually};

/// Returns field and code of every reason of the refusal.
fn reasons(refused: Result<impl Sized, ClientError>) -> Vec<(String, String)> {
    let Err(ClientError::Problem(problem)) = refused else { panic!("expected a problem document") };
    assert_eq!((problem.code.as_str(), problem.status), ("placement_invalid", 422));
    assert!(problem.errors.iter().all(|reason| reason.next.is_some()), "{:?}", problem.errors);
    problem.errors.into_iter().map(|reason| (reason.field, reason.code)).collect()
}

fn expected(reasons: &[(&str, &str)]) -> Vec<(String, String)> {
    reasons.iter().map(|(field, code)| ((*field).to_owned(), (*code).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placement_is_refused_with_all_its_reasons_at_once() {
    let platform = Platform::with_release(4, &[]).await;
    let client = platform.client();
    let of = |placement: Value| Deploy {
        project: Some(PROJECT.to_owned()),
        app: "rke2".to_owned(),
        version: None,
        name: "train".to_owned(),
        placement,
        config: Value::Null,
    };
    let missing = client.deploy_workload(&of(json!({ "agent_allocation_ids": [] }))).await;
    assert_eq!(reasons(missing), expected(&[("server_allocation_id", "server_required")]));

    // demo-3's allocation is released and so inactive. Project `other` cannot allocate the node, so an unknown id serves as a foreign one.
    let (one, two) = (platform.allocation(1).await, platform.allocation(2).await);
    let inactive = platform.allocation(3).await;
    client.release_allocation(&inactive).await.expect("released");
    client.create_project(&CreateProject { name: "other".into() }).await.expect("made");
    let unknown: AllocationId = "019c0000-0000-7000-8000-000000000000".parse().expect("an id");
    let foreign = {
        let fresh =
            client.create_allocation(&CreateAllocation { project: "other".into(), node: "demo-3".into() }).await;
        // A released node cannot be allocated before it is reimaged.
        assert!(fresh.is_err());
        unknown.to_string()
    };
    // demo-4's agent is stopped, so the node becomes unreachable.
    let four = platform.allocation(4).await;
    platform.signal_agent(4, "STOP");
    eventually("demo-4 does not become unreachable", async || {
        client.get_node("demo-4").await.is_ok_and(|node| node.connectivity == "unreachable")
    })
    .await;

    let placement =
        json!({ "server_allocation_id": one, "agent_allocation_ids": [one, two, two, inactive, foreign, four] });
    assert_eq!(
        reasons(client.deploy_workload(&of(placement)).await),
        expected(&[
            ("agent_allocation_ids[0]", "allocation_repeated"),
            ("agent_allocation_ids[2]", "allocation_repeated"),
            ("agent_allocation_ids[3]", "allocation_inactive"),
            ("agent_allocation_ids[4]", "allocation_unknown"),
            ("agent_allocation_ids[5]", "allocation_unreachable"),
        ])
    );
    let options = client.placement_options(Some(PROJECT.to_owned()), "rke2").await.expect("options").items;
    let unusable = options.iter().find(|option| option.allocation.id == four).expect("listed");
    assert!(!unusable.usable && unusable.reasons[0].code == "allocation_unreachable");
    let version = Deploy { version: Some("v0".into()), ..of(json!({ "server_allocation_id": two })) };
    let Err(ClientError::Problem(problem)) = client.deploy_workload(&version).await else { panic!("unknown version") };
    assert_eq!(problem.code, "version_unknown");
    platform.signal_agent(4, "CONT");
    eventually("demo-4 does not come back", async || {
        client.get_node("demo-4").await.is_ok_and(|node| node.connectivity == "connected")
    })
    .await;

    assert!(client.list_workloads(None, None, None).await.expect("a list").items.is_empty(), "nothing was made");
    let tasks = client.list_tasks(None, None).await.expect("tasks").items;
    assert!(tasks.iter().all(|task| !task.task_type.starts_with("rke2.")), "no node was touched");

    let first = Deploy { name: "first".into(), ..of(json!({ "server_allocation_id": one })) };
    client.deploy_workload(&first).await.expect("accepted");
    let placement = json!({ "server_allocation_id": two, "agent_allocation_ids": [one] });
    let in_use = reasons(client.deploy_workload(&of(placement)).await);
    assert_eq!(in_use, expected(&[("agent_allocation_ids[0]", "allocation_in_use")]));
}
