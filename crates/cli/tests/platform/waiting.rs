//! Nothing waits unexplained: every resource says what is awaited, from whom, since when, and what to do.

use std::collections::BTreeMap;

use gpuaas_api_types::{CreateAllocation, CreateProject, OperationDetail, RegisterNode, Started, Waiting};

use crate::{
    kubectl::Kubectl,
    world::{PROJECT, Platform, eventually},
};

/// Fails unless a wait is explained completely.
#[track_caller]
fn explained<'w>(what: &str, waiting: Option<&'w Waiting>) -> &'w Waiting {
    let waiting = waiting.unwrap_or_else(|| panic!("{what} explains nothing"));
    let texts = [&waiting.what, &waiting.from, &waiting.since, &waiting.next];
    assert!(texts.iter().all(|text| !text.is_empty()), "{what}: {waiting:?}");
    waiting
}

fn project() -> Option<String> {
    Some(PROJECT.to_owned())
}

/// Fails unless the workload `train`, its members, its operation and the operation's steps and tasks are explained, in lists too.
async fn assert_all_explained(platform: &Platform, started: &Started) -> OperationDetail {
    let client = platform.client();
    let detail = client.get_workload(project(), "train").await.expect("a workload");
    explained("the workload", detail.workload.waiting.as_ref());
    for member in detail.members.iter().filter(|member| member.state != "ready") {
        explained(&member.name, member.waiting.as_ref());
    }
    let listed = client.list_workloads(project(), None, None).await.expect("a list").items;
    explained("the listed workload", listed[0].waiting.as_ref());
    let listed = client.list_operations(project(), Some("train".to_owned()), None).await.expect("a list").items;
    let listed = listed.iter().find(|operation| operation.id == started.operation.id).expect("listed");
    explained("the listed operation", listed.waiting.as_ref());
    let operation = client.get_operation(&started.operation.id).await.expect("an operation");
    explained("the operation", operation.operation.waiting.as_ref());
    for step in &operation.steps {
        match step.ended_at {
            None => assert!(!explained(&step.key, step.waiting.as_ref()).what.is_empty()),
            Some(_) => assert!(step.waiting.is_none(), "{} has ended: {:?}", step.key, step.waiting),
        }
    }
    let tasks = client.list_tasks(None, Some(started.operation.id.clone())).await.expect("a list").items;
    for task in &tasks {
        match task.ended_at {
            None => assert!(!explained(&task.task_type, task.waiting.as_ref()).what.is_empty()),
            Some(_) => assert!(task.waiting.is_none(), "{} has ended: {:?}", task.id, task.waiting),
        }
    }
    operation
}

fn printed(platform: &Platform, arguments: &[&str]) -> String {
    let output = platform.gpuaas(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_that_hangs_and_then_fails_is_explained_everywhere() {
    let deadlines = [("GPUAAS_RKE2_START_DEADLINE", "25s"), ("GPUAAS_RKE2_NODE_READY_DEADLINE", "25s")];
    let platform = Platform::with_release(1, &deadlines).await;
    platform.inject_faults(1, "etcd-never-ready");
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    let id = started.operation.id.as_str();
    eventually("the start does not run", async || {
        let detail = client.get_operation(id).await.expect("an operation");
        detail.steps.iter().any(|of| of.key == "server-1/start" && of.state == "running" && of.detail.is_some())
    })
    .await;
    let hanging = assert_all_explained(&platform, &started).await;
    let waiting = explained("the operation", hanging.operation.waiting.as_ref());
    assert_eq!((waiting.what.as_str(), waiting.from.as_str()), ("server-1 to start", "node"));
    assert!(waiting.evidence.is_some() && waiting.until.is_some(), "{waiting:?}");
    let pending = hanging.steps.iter().find(|step| step.state == "pending").expect("a later step");
    assert!(explained(&pending.key, pending.waiting.as_ref()).what.contains(" to succeed"), "{pending:?}");
    for (arguments, expected) in [
        (&["workload", "show", "train", "--project", PROJECT][..], "waiting for server-1 to start"),
        (&["workload", "list", "--project", PROJECT], "waiting for server-1 to start"),
        (&["operation", "show", id], "WAITING  for server-1 to start (for "),
        (&["operation", "list", "--project", PROJECT], "WAITING FOR"),
        (&["task", "list", "--operation", id], "demo-1 to start"),
    ] {
        let text = printed(&platform, arguments);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }

    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "needs_attention");
    let failed = assert_all_explained(&platform, &started).await;
    let waiting = explained("the operation", failed.operation.waiting.as_ref());
    let fault = failed.operation.fault.as_ref().expect("a fault");
    assert_eq!((waiting.from.as_str(), &waiting.next), ("tenant", &fault.next), "{waiting:?}");
    assert!(waiting.evidence.as_ref().is_some_and(|seen| seen.starts_with(&fault.summary)), "{waiting:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_out_of_reach_or_not_enrolled_and_their_allocations_are_explained() {
    let platform = Platform::start(1);
    let client = platform.client();
    let connected = client.get_node("demo-1").await.expect("a node");
    assert!(connected.waiting.is_none(), "{:?}", connected.waiting);
    let machine = RegisterNode { name: "gpu-01".to_owned(), region: None, labels: BTreeMap::new() };
    let registered = client.register_node(&machine).await.expect("registered").node;
    let waiting = explained("gpu-01", registered.waiting.as_ref());
    assert!(waiting.until.is_some() && waiting.from == "operator", "its string expires: {waiting:?}");

    platform.signal_agent(1, "STOP");
    eventually("demo-1 does not become unreachable", async || {
        client.get_node("demo-1").await.is_ok_and(|node| node.connectivity == "unreachable")
    })
    .await;
    for node in client.list_nodes(None, None).await.expect("a list").items {
        explained(&node.name, node.waiting.as_ref());
    }
    client.create_project(&CreateProject { name: "ml".into() }).await.expect("made");
    let ask = CreateAllocation { project: "ml".into(), node: "demo-1".into() };
    let allocation = client.create_allocation(&ask).await.expect("made");
    let waiting = explained("the allocation", allocation.waiting.as_ref());
    assert_eq!((waiting.what.as_str(), waiting.from.as_str()), ("demo-1 to connect", "operator"));
    let listed = client.list_allocations(Some("ml".to_owned()), None).await.expect("a list").items;
    explained("the listed allocation", listed[0].waiting.as_ref());
    for (arguments, expected) in [
        (&["node", "list"][..], "demo-1 to connect: demo-1 is unreachable since "),
        (&["node", "show", "demo-1"], "waiting     demo-1 to connect"),
        (&["node", "show", "gpu-01"], "waiting     its machine to enroll"),
        (&["allocation", "list", "--project", "ml"], "demo-1 to connect"),
        (&["allocation", "show", allocation.id.as_str()], "; the operator has to act"),
    ] {
        let text = printed(&platform, arguments);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }

    platform.signal_agent(1, "CONT");
    eventually("the allocation does not become active", async || {
        client.get_allocation(&allocation.id).await.is_ok_and(|of| of.state == "active" && of.waiting.is_none())
    })
    .await;
    let connected = client.get_node("demo-1").await.expect("a node");
    assert!(connected.waiting.is_none(), "{:?}", connected.waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_that_a_budget_blocks_names_the_budget_and_a_drained_member_its_next_action() {
    let platform = Platform::with_release(2, &[]).await;
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[2]).await).await.expect("accepted");
    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
    let settled = client.get_workload(project(), "train").await.expect("a workload");
    assert!(settled.workload.waiting.is_none(), "{:?}", settled.workload.waiting);
    assert!(settled.members.iter().all(|member| member.waiting.is_none()), "{:?}", settled.members);

    let admin = Kubectl::deliver(&platform, "direct", "cluster-admin").await;
    admin.run("cordon demo-1").expect("cordoned");
    admin.run("create deployment web --image=docker.io/stand-in/busybox --replicas=1").expect("made");
    admin.run("create poddisruptionbudget web --selector=app=web --min-available=1").expect("made");
    admin.run("wait deployment/web --for=condition=Available --timeout=60s").expect("available");
    let drain = "workload drain-member train agent-1 --force --drain-timeout 80s --yes --project research";
    let drained = platform.gpuaas(&drain.split(' ').chain(["-o", "json"]).collect::<Vec<_>>());
    let started: Started = serde_json::from_slice(&drained.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&drained.stderr)));
    eventually("the drain does not name the budget", async || {
        let detail = client.get_operation(&started.operation.id).await.expect("an operation");
        let waiting = detail.operation.waiting;
        waiting.is_some_and(|of| {
            of.what == "agent-1 to be drained" && of.evidence.is_some_and(|seen| seen.contains("web"))
        })
    })
    .await;
    let blocked = assert_all_explained(&platform, &started).await;
    assert_eq!(explained("the drain", blocked.operation.waiting.as_ref()).from, "cluster");
    admin.run("delete poddisruptionbudget web").expect("deleted");
    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
    let detail = client.get_workload(project(), "train").await.expect("a workload");
    let member = detail.members.iter().find(|member| member.name == "agent-1").expect("an agent");
    let waiting = explained("the drained member", member.waiting.as_ref());
    assert_eq!(waiting.command.as_deref(), Some("gpuaas workload uncordon-member train agent-1"));
}
