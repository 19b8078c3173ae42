//! Inspections of nodes, fixes, and nodes whose agent has a problem.

use gpuaas_engine::commands::{allocation, fix, inspect, node, ping, project};
use gpuaas_model::{
    AllocationState, AuditAction, Code, Coded, Connectivity, EnrolledNode, EventKind, FixKind, NodeId, NodeState,
    StreamName, TaskType,
};
use gpuaas_store::NodeRecord;
use gpuaas_trust::{EnrollmentString, NodeKey, SecretText};
use gpuaas_wire::{
    session::{AgentProblem, AgentProblemKind, EnrollRequest, Hello, LedgerMark},
    task::{Severity, TaskSupport, WriteLatency},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    engines::{Engines, admin, eventually},
    nodes::{Reaction, done, failed, hold},
    site::hello,
};

/// Creates an engine with an active node whose agent supports these schema versions of inspections, and fixes.
async fn of_agent(schemas: &[u32]) -> (Engines, NodeId) {
    let engines = Engines::new().await;
    let id = engines.node("gpu-1").await;
    let knows =
        |task: TaskType, schemas: &[u32]| TaskSupport { task: task.as_str().to_owned(), schemas: schemas.to_vec() };
    change(&engines, id, |node| {
        (node.state, node.connectivity) = (NodeState::Active, Connectivity::Connected);
        node.support = vec![knows(TaskType::Inspect, schemas), knows(TaskType::Fix, &[1])];
    })
    .await;
    (engines, id)
}

fn forced() -> node::Forced {
    node::Forced { reason: "its disk was replaced".to_owned() }
}

async fn change(engines: &Engines, id: NodeId, change: impl FnOnce(&mut NodeRecord)) {
    let mut tx = engines.store().begin().await.unwrap();
    let mut node = tx.node(id).await.unwrap();
    change(&mut node);
    tx.update_node(&node).await.unwrap();
    tx.commit().await.unwrap();
}

async fn read(engines: &Engines, id: NodeId) -> NodeRecord {
    engines.store().read().await.unwrap().node(id).await.unwrap()
}

async fn events_of(engines: &Engines, kind: EventKind) -> Vec<Value> {
    let events = engines.store().read().await.unwrap().events(StreamName::Platform, 0, 1_000).await.unwrap();
    events.into_iter().filter(|event| event.kind == kind).map(|event| event.data).collect()
}

/// An inspection result of an agent of the newest version.
fn inspection(writes: Option<WriteLatency>) -> Value {
    let mut result = older();
    result["machine"] =
        json!({ "cpu_sockets": 2, "cpu_cores": 64, "data_disk": { "folder": "/var/lib", "writes": writes } });
    result["preflight"] = json!({ "passed": 30, "findings": [
        { "check": "inotify_low", "severity": "warning", "detail": "it is low", "fix": "raise it" },
    ] });
    result
}

/// An inspection result of an agent of the first version.
fn older() -> Value {
    json!({
        "hostname": "gpu-1", "machine_id": "ab", "boot_id": "cd", "os": "Debian", "kernel": "6.1", "arch": "x86_64", "cpus": 8,
        "memory_bytes": 1, "addresses": ["10.0.0.7"], "disks": [], "sandbox": false,
    })
}

const MEASURED: WriteLatency = WriteLatency { writes: 64, p50_us: 1, p99_us: 2, max_us: 3 };

#[tokio::test]
async fn fully_inspected_node_is_not_inspected_again_automatically() {
    let (engines, id) = of_agent(&[1, 2]).await;
    engines.nodes.end_tasks([done(inspection(Some(MEASURED)))]);
    inspect::inspect_new(&engines.engine, id);
    eventually("it is not inspected", async || read(&engines, id).await.inspected_at.is_some()).await;
    let node = read(&engines, id).await;
    assert_eq!(node.machine.as_ref().map(|machine| machine.cpu_cores), Some(64));
    let severities: Vec<Severity> = node.preflight.unwrap().findings.iter().map(|of| of.finding.severity).collect();
    assert_eq!(severities, [Severity::Warning]);
    let events = events_of(&engines, EventKind::NodeInspected).await;
    assert_eq!((events.len(), events[0]["passed"].as_u64(), events[0]["warnings"].as_u64()), (1, Some(30), Some(1)));
    for _ in 0..3 {
        inspect::inspect_new(&engines.engine, id);
    }
    // An admin's request does inspect the node again. Its task is the second, so the inspections spawned above sent none.
    // The earlier measurement stays.
    engines.nodes.end_tasks([done(inspection(None))]);
    let node = inspect::inspect(&engines.engine, &admin(), id).await.unwrap();
    assert_eq!(node.machine.and_then(|machine| machine.data_disk).and_then(|disk| disk.writes), Some(MEASURED));
    assert_eq!((engines.nodes.sent(), engines.recorded(AuditAction::NodeInspect).await), (2, 1));
}

#[tokio::test]
async fn node_is_inspected_again_once_its_agent_is_newer() {
    let (engines, id) = of_agent(&[1]).await;
    engines.nodes.end_tasks([done(older())]);
    inspect::inspect_new(&engines.engine, id);
    eventually("it is not inspected", async || read(&engines, id).await.inspected_at.is_some()).await;
    let tasks = engines.store().read().await.unwrap().tasks(&Default::default()).await.unwrap();
    assert_eq!((tasks[0].schema, &tasks[0].params), (1, &json!({})));
    assert!(read(&engines, id).await.machine.is_none());
    change(&engines, id, |node| node.support[0].schemas = vec![1, 2]).await;
    engines.nodes.end_tasks([done(inspection(None))]);
    inspect::inspect_new(&engines.engine, id);
    eventually("it is not inspected again", async || read(&engines, id).await.machine.is_some()).await;
}

#[tokio::test]
async fn invalid_inspection_is_discarded_and_disconnected_node_is_refused() {
    let (engines, id) = of_agent(&[1, 2]).await;
    engines.nodes.end_tasks([done(json!({ "nonsense": true })), failed(Code::Forbidden, "a lie")]);
    let invalid = inspect::inspect(&engines.engine, &admin(), id).await.unwrap_err();
    assert_eq!(invalid.code(), Code::TaskResultInvalid);
    // The control plane does not return a node's error code as its own.
    let refused = inspect::inspect(&engines.engine, &admin(), id).await.unwrap_err();
    assert_eq!(refused.code(), Code::HostFailed);
    assert!(read(&engines, id).await.inspected_at.is_none());
    change(&engines, id, |node| node.connectivity = Connectivity::Stale).await;
    let refused = inspect::inspect(&engines.engine, &admin(), id).await.unwrap_err();
    assert_eq!((refused.code(), engines.nodes.sent()), (Code::NodeUnreachable, 2));
}

#[tokio::test]
async fn inspection_from_before_a_reset_is_discarded() {
    let (engines, id) = of_agent(&[1, 2]).await;
    let (end, reaction) = hold("looking");
    engines.nodes.react([reaction]);
    inspect::inspect_new(&engines.engine, id);
    eventually("no task is sent", async || engines.nodes.sent() == 1).await;
    node::reset(&engines.engine, &admin(), id, &Default::default(), Some(&forced())).await.unwrap();
    end.send(done(inspection(None))).unwrap();
    eventually("the task does not end", async || {
        engines.store().read().await.unwrap().all_open_tasks().await.unwrap().is_empty()
    })
    .await;
    let node = read(&engines, id).await;
    assert_eq!((node.state, node.facts, node.inspected_at), (NodeState::Registered, None, None));
    assert_eq!(events_of(&engines, EventKind::NodeInspected).await, Vec::<Value>::new());
}

#[tokio::test]
async fn fix_is_recorded_and_node_is_inspected_again() {
    let (engines, id) = of_agent(&[1, 2]).await;
    let applied = json!([{ "name": "fs.inotify.max_user_instances", "before": "128", "now": "8192" }]);
    let fixed = json!({ "path": "/etc/sysctl.d/60-gpuaas-inotify.conf", "changed": true, "applied": applied });
    engines.nodes.end_tasks([done(fixed), done(inspection(None))]);
    let done = fix::fix(&engines.engine, &admin(), id, "inotify_low").await.unwrap();
    assert!(done.kind == FixKind::Inotify && done.fixed.changed && done.node.inspected_at.is_some());
    let events = events_of(&engines, EventKind::NodeFixed).await;
    assert_eq!((events.len(), events[0]["fix"].as_str()), (1, Some("inotify")));
    assert_eq!(engines.recorded(AuditAction::NodeFix).await, 1);
}

#[tokio::test]
async fn failed_or_unknown_fix_is_refused_without_event() {
    let (engines, id) = of_agent(&[1, 2]).await;
    engines.nodes.end_tasks([failed(Code::HostFailed, "/etc is read-only")]);
    let refused = fix::fix(&engines.engine, &admin(), id, "inotify").await.unwrap_err();
    assert!(refused.code() == Code::HostFailed && refused.to_string().contains("read-only"), "{refused}");
    let unknown = fix::fix(&engines.engine, &admin(), id, "no_such").await.unwrap_err();
    assert_eq!((unknown.code(), engines.nodes.sent()), (Code::FixUnknown, 1), "no task for it");
    change(&engines, id, |node| node.support.truncate(1)).await;
    let too_old = fix::fix(&engines.engine, &admin(), id, "inotify").await.unwrap_err();
    assert_eq!((too_old.code(), engines.nodes.sent()), (Code::AgentTooOld, 1));
    assert_eq!(events_of(&engines, EventKind::NodeFixed).await, Vec::<Value>::new());
}

async fn connect(engines: &Engines, id: NodeId, number: u128, problem: Option<AgentProblemKind>) {
    let enrolled = EnrolledNode { node: id, epoch: read(engines, id).await.epoch };
    let written = u64::try_from(number).unwrap();
    let ledger = problem.is_none().then(|| LedgerMark { id: "ef".repeat(16), written });
    let problem = problem.map(|kind| AgentProblem { kind, detail: "ledger.jsonl is missing".to_owned() });
    let support = vec![TaskSupport { task: TaskType::Inspect.as_str().to_owned(), schemas: vec![1, 2] }];
    let hello = Hello { problem, ledger, ..hello(support) };
    node::connected(&engines.engine, enrolled, Uuid::from_u128(number), &hello).await.unwrap();
}

#[tokio::test]
async fn node_whose_agent_has_lost_its_ledger_is_shown_and_sent_no_task() {
    let (engines, id) = of_agent(&[1, 2]).await;
    // A task under way ends when the agent reconnects without its ledger.
    engines.nodes.react([Reaction::Disconnected]);
    let (caller, back) = (admin(), async {
        eventually("no task is sent", async || engines.nodes.sent() == 1).await;
        connect(&engines, id, 7, Some(AgentProblemKind::LedgerMissing)).await;
    });
    let (inspected, ()) = tokio::join!(inspect::inspect(&engines.engine, &caller, id), back);
    assert_eq!(inspected.unwrap_err().code(), Code::AgentLedgerDamaged);
    let refused = inspect::inspect(&engines.engine, &admin(), id).await.unwrap_err();
    assert_eq!(refused.code(), Code::AgentLedgerDamaged);
    assert!(refused.next().unwrap().contains("gpuaas node enroll gpu-1"), "{refused:?}");
    assert_eq!(ping::ping(&engines.engine, &admin(), id).await.unwrap_err().code(), Code::AgentLedgerDamaged);
    let project = project::create(&engines.engine, &admin(), "research".parse().unwrap()).await.unwrap().id;
    let allocated = allocation::create(&engines.engine, &admin(), project, id).await.unwrap_err();
    assert_eq!((allocated.code(), engines.nodes.sent()), (Code::AgentLedgerDamaged, 1));
    let problem = read(&engines, id).await.agent_problem.unwrap();
    assert_eq!((problem.code, problem.detail.as_str()), (Code::AgentLedgerDamaged, "ledger.jsonl is missing"));
    // One event when the problem appears and one when it ends. A repeated report changes nothing, not even its time.
    connect(&engines, id, 8, Some(AgentProblemKind::LedgerMissing)).await;
    assert_eq!(read(&engines, id).await.agent_problem, Some(problem));
    connect(&engines, id, 9, None).await;
    let node = read(&engines, id).await;
    assert_eq!((node.agent_problem, node.ledger.map(|ledger| ledger.written)), (None, Some(9)));
    let events: Vec<Value> = events_of(&engines, EventKind::NodeAgentProblemChanged).await;
    let problems: Vec<_> = events.iter().map(|data| data["problem"].as_str()).collect();
    assert_eq!(problems, [Some("agent_ledger_damaged"), None]);
    engines.nodes.end_tasks([done(json!({}))]);
    assert!(ping::ping(&engines.engine, &admin(), id).await.is_ok());
}

#[tokio::test]
async fn active_node_enrolls_again_only_by_force_or_without_tasks() {
    let (engines, id) = of_agent(&[1, 2]).await;
    let enroll = async |is_forced: bool| {
        let forced = is_forced.then(forced);
        node::issue_enrollment(&engines.engine, &admin(), id, &Default::default(), forced.as_ref()).await
    };
    let redeem_on = async |string: &SecretText, machine_id: &str| {
        let token = EnrollmentString::decode(string.expose()).unwrap().token.expose().to_owned();
        let csr = NodeKey::generate().unwrap().request_pem().unwrap();
        let (machine_id, agent_version) = (machine_id.to_owned(), "1".to_owned());
        let ask = EnrollRequest { node: id, token, csr, machine_id, agent_version, clock: None, reimage: None };
        node::redeem(&engines.engine, admin().correlation, ask).await
    };
    let redeem = async |string: &SecretText| redeem_on(string, "machine").await;
    let refused = enroll(false).await.unwrap_err();
    assert_eq!(refused.code(), Code::StateConflict);
    assert!(refused.next().unwrap().contains("gpuaas node enroll gpu-1 --force --reason TEXT"), "{refused:?}");
    // An enrollment string for a node in use is refused once its agent has recovered.
    connect(&engines, id, 7, Some(AgentProblemKind::LedgerDamaged)).await;
    let string = enroll(false).await.unwrap().1;
    connect(&engines, id, 8, None).await;
    assert!(redeem(&string).await.is_err());
    for (number, is_forced) in [(9, false), (10, true)] {
        if !is_forced {
            connect(&engines, id, number, Some(AgentProblemKind::LedgerDamaged)).await;
        }
        let epoch = read(&engines, id).await.epoch;
        let string = enroll(is_forced).await.unwrap().1;
        if !is_forced {
            let refused = redeem_on(&string, "another").await.unwrap_err();
            assert_eq!(refused.code(), Code::StateConflict);
            assert!(refused.to_string().contains("another machine"), "{refused}");
        }
        redeem(&string).await.unwrap();
        let node = read(&engines, id).await;
        assert_eq!((node.state, node.epoch, node.agent_problem), (NodeState::Active, epoch + 1, None));
        assert!(redeem(&string).await.is_err(), "the string is valid once");
    }
}

#[tokio::test]
async fn active_node_is_reset_only_by_force() {
    let (engines, id) = of_agent(&[1, 2]).await;
    let reset = async |is_forced: bool| {
        let forced = is_forced.then(forced);
        node::reset(&engines.engine, &admin(), id, &Default::default(), forced.as_ref()).await
    };
    let refused = reset(false).await.unwrap_err();
    assert_eq!(refused.code(), Code::StateConflict);
    assert!(refused.next().unwrap().contains("--force"), "{refused:?}");
    let epoch = read(&engines, id).await.epoch;
    let (node, _) = reset(true).await.unwrap();
    assert_eq!((node.state, node.epoch), (NodeState::Registered, epoch + 1));
    assert_eq!(reset(true).await.unwrap_err().code(), Code::StateConflict, "there is nothing to reset");
}

#[tokio::test]
async fn allocation_of_a_disconnected_node_says_what_it_waits_for() {
    let (engines, id) = of_agent(&[1, 2]).await;
    change(&engines, id, |node| node.connectivity = Connectivity::Stale).await;
    engines.nodes.react([Reaction::Disconnected]);
    let project = project::create(&engines.engine, &admin(), "research".parse().unwrap()).await.unwrap().id;
    let allocation = allocation::create(&engines.engine, &admin(), project, id).await.unwrap().id;
    let read = async || engines.store().read().await.unwrap().allocation(allocation).await.unwrap();
    eventually("it is not provisioned", async || read().await.state == AllocationState::Provisioning).await;
    let detail = read().await.detail.expect("a detail");
    assert!(detail.starts_with("waits for gpu-1, which is stale since "), "{detail}");
}
