//! Decommissions of workloads with a node that is unreachable or cannot be cleaned.

use gpuaas_engine::{
    CommandError, Precondition,
    commands::{
        allocation, inspect,
        node::{self, Forced},
        node_removal, placement,
        workload::{self, GiveUp},
    },
};
use gpuaas_model::{
    AuditAction, Check, Code, Coded, Lifecycle, MemberEvent, MemberStateName, NodeState, OperationId, OperationKind,
    OperationState, StepState, TaskType, WorkloadId,
};
use gpuaas_planner::{OperationRequest, RecordKind, StepAction, StepSpec, WorkloadView};
use gpuaas_store::{AuditFilter, NodeFinding, NodeRecord, Page};
use gpuaas_wire::task::TaskSupport;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    blocking_findings::clean,
    engines::{admin, eventually},
    kit::{KIT, milestone, needs, task},
    nodes::{done, failed, hold},
    site::{Site, enrolled, hello},
};

const REASON: &str = "the machine burnt down";

fn removing(step: StepSpec) -> StepSpec {
    StepSpec { on_first_start: Some(MemberEvent::Remove), on_success: Some(MemberEvent::Removed), ..step }
}

fn record(key: &str, of: &WorkloadView, member: usize, record: RecordKind) -> StepSpec {
    StepSpec { action: StepAction::Record { record }, ..task(key, of, member) }
}

/// Removes the first member, and the second one once its node is connected.
fn waiting(of: &WorkloadView) -> Vec<StepSpec> {
    let wait = record("wait", of, 1, RecordKind::AwaitNode);
    vec![
        removing(task("first", of, 0)),
        StepSpec { on_first_start: Some(MemberEvent::Remove), ..wait },
        needs(removing(task("second", of, 1)), &["wait"]),
    ]
}

/// Removes the first member, if it is present, and gives up the last one.
fn giving_up(of: &WorkloadView) -> Vec<StepSpec> {
    let last = of.members.len() - 1;
    let mut steps: Vec<StepSpec> = (0..last).map(|at| removing(task(&format!("remove-{at}"), of, at))).collect();
    steps.push(removing(record("give-up", of, last, RecordKind::GiveUp)));
    let keys: Vec<String> = steps.iter().map(|step| step.key.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    steps.push(needs(milestone("removed"), &keys));
    steps
}

fn named(nodes: &[&str]) -> GiveUp {
    let nodes = nodes.iter().map(ToString::to_string).collect();
    GiveUp { nodes, unproven: false, reason: Some(REASON.to_owned()) }
}

fn forced() -> GiveUp {
    GiveUp { unproven: true, ..named(&[]) }
}

/// Deploys a workload that has changed all of its nodes.
async fn deployed(site: &Site) -> WorkloadId {
    let ended = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    let mut tx = site.engines.store().begin().await.unwrap();
    for mut member in ended.members {
        member.touched = true;
        tx.update_member(&member, member.state.name()).await.unwrap();
    }
    tx.commit().await.unwrap();
    ended.workload.id
}

async fn lose(site: &Site, node: usize) {
    site.disconnect(node).await;
    site.mark_unreachable(node).await;
}

/// Starts a decommission that waits for the second node.
async fn wait_for_second(site: &Site, id: WorkloadId) -> OperationId {
    site.engines.kit.set_plan(waiting);
    let accepted = workload::decommission(&site.engines.engine, &admin(), id, &Precondition::Any).await.unwrap();
    let operation = accepted.operation.id;
    site.until(operation, "first", |step| step.state == StepState::Succeeded).await;
    site.until(operation, "wait", |step| step.detail.is_some()).await;
    operation
}

async fn give_up(site: &Site, id: WorkloadId, ask: &GiveUp) -> Result<OperationId, CommandError> {
    site.engines.kit.set_plan(giving_up);
    let engine = &site.engines.engine;
    let accepted = workload::decommission_giving_up(engine, &admin(), id, &Precondition::Any, ask).await?;
    Ok(accepted.operation.id)
}

async fn node_of(site: &Site, node: usize) -> NodeRecord {
    site.engines.store().read().await.unwrap().node(site.nodes[node]).await.unwrap()
}

fn finding<'n>(node: &'n NodeRecord, check: &str) -> Option<&'n NodeFinding> {
    node.preflight.iter().flat_map(|preflight| &preflight.findings).find(|of| of.finding.check == check)
}

fn unproven(node: &NodeRecord) -> Option<&NodeFinding> {
    finding(node, Check::RemovalUnproven.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn decommission_waits_for_an_unreachable_node_alone_and_continues_when_it_connects() {
    let site = Site::of(2).await;
    let id = deployed(&site).await;
    lose(&site, 1).await;
    let operation = wait_for_second(&site, id).await;
    let mut reader = site.engines.store().read().await.unwrap();
    let steps = reader.steps_of(operation).await.unwrap();
    let detail = steps[1].detail.clone().unwrap();
    for part in ["gpu-2 has been unreachable since", "train --give-up gpu-2 --reason TEXT"] {
        assert!(detail.contains(part), "{detail}");
    }
    let states: Vec<_> = reader.members_of(id).await.unwrap().iter().map(|member| member.state.name()).collect();
    assert_eq!(states, [MemberStateName::Removed, MemberStateName::Removing]);
    drop(reader);
    site.reconnect(1).await;
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["wait"].attempts), (OperationState::Succeeded, 1));
    assert_eq!(ended.workload.lifecycle, Lifecycle::Decommissioned);
    assert!(unproven(&node_of(&site, 1).await).is_none(), "its removal is proven");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_node_continues_in_the_next_process() {
    let site = Site::of(2).await;
    let id = deployed(&site).await;
    lose(&site, 1).await;
    let operation = wait_for_second(&site, id).await;
    site.engines.engine.stop();
    site.engines.engine.leave().await.unwrap();
    let successor = site.engines.successor().await;
    successor.join().await.unwrap();
    let engine = successor.clone();
    tokio::spawn(async move { engine.run().await });
    let support = node_of(&site, 1).await.support;
    let (node, connection) = (enrolled(site.nodes[1]), Uuid::from_u128(99));
    node::connected(&successor, node, connection, &hello(support)).await.unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["wait"].attempts), (OperationState::Succeeded, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_wait_ends_the_operation_and_the_node_can_be_given_up() {
    let site = Site::of(2).await;
    let id = deployed(&site).await;
    lose(&site, 1).await;
    let operation = wait_for_second(&site, id).await;
    site.cancel(operation).await;
    let ended = site.end_of(operation).await;
    assert_eq!((ended.operation.state, ended.steps["wait"].state), (OperationState::Cancelled, StepState::Cancelled));
    assert_eq!(ended.members[1].state.name(), MemberStateName::Failed);
    // Its removal was tried, and its node has not answered.
    let again = give_up(&site, id, &forced()).await.unwrap();
    let ended = site.end_of(again).await;
    assert_eq!(ended.operation.state, OperationState::Succeeded, "{:?}", ended.operation.fault);
    assert_eq!(Value::from(ended.operation.parameters), json!({ "give_up": ["unit-2"], "reason": REASON }));
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_ends_the_wait_for_the_node_and_no_other_operation() {
    let site = Site::of(2).await;
    let id = deployed(&site).await;
    lose(&site, 1).await;
    let (end, reaction) = hold("uninstalling");
    site.engines.nodes.react([reaction]);
    site.engines.kit.set_plan(waiting);
    let engine = &site.engines.engine;
    let first = workload::decommission(engine, &admin(), id, &Precondition::Any).await.unwrap().operation.id;
    site.until(first, "first", |step| step.detail.is_some()).await;
    site.until(first, "wait", |step| step.detail.is_some()).await;
    let busy = give_up(&site, id, &named(&["gpu-2"])).await.unwrap_err();
    assert_eq!(busy.code(), Code::OperationInProgress, "the first member is being removed");
    end.send(done(json!({}))).unwrap();
    site.until(first, "first", |step| step.state == StepState::Succeeded).await;
    workload::preview_giving_up(engine, &admin(), id, &Precondition::Any, &named(&["gpu-2"])).await.unwrap();
    let state = async || site.engines.store().read().await.unwrap().operation(first).await.unwrap().state;
    assert_eq!(state().await, OperationState::Running, "a preview changes nothing");
    let second = give_up(&site, id, &named(&["gpu-2"])).await.unwrap();
    assert_eq!(site.end_of(second).await.workload.lifecycle, Lifecycle::Decommissioned);
    let ended = site.end_of(first).await;
    let steps = ["first", "wait", "second"].map(|key| ended.steps[key].state);
    assert_eq!(ended.operation.state, OperationState::Cancelled);
    assert_eq!(steps, [StepState::Succeeded, StepState::Cancelled, StepState::Skipped]);
    assert_eq!(site.engines.recorded(AuditAction::OperationCancel).await, 1);
    site.reconnect(1).await;
    assert_eq!(site.end_of(first).await.steps["wait"].state, StepState::Cancelled, "it ended for good");
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_one_member_does_not_end_the_wait_for_another() {
    let site = Site::of(2).await;
    let id = deployed(&site).await;
    lose(&site, 0).await;
    lose(&site, 1).await;
    let start = async |parameters: Value| {
        let parameters = parameters.as_object().cloned().unwrap();
        let request = OperationRequest { kind: OperationKind::RemoveMember, parameters };
        workload::start_operation(&site.engines.engine, &admin(), id, &Precondition::Any, request).await
    };
    site.engines.kit.set_plan(|of| {
        let wait = record("wait", of, 0, RecordKind::AwaitNode);
        let wait = StepSpec { on_first_start: Some(MemberEvent::Remove), ..wait };
        vec![wait, needs(removing(task("remove", of, 0)), &["wait"])]
    });
    let first = start(json!({ "member": "unit-1" })).await.unwrap().operation.id;
    site.until(first, "wait", |step| step.detail.is_some()).await;
    site.engines.kit.set_plan(giving_up);
    let refused = start(json!({ "member": "unit-2", "give_up": true, "reason": REASON })).await.unwrap_err();
    assert_eq!(refused.code(), Code::OperationInProgress, "nothing would explain the first member");
    let second = start(json!({ "member": "unit-1", "give_up": true, "reason": REASON })).await.unwrap().operation.id;
    assert_eq!(site.end_of(second).await.operation.state, OperationState::Succeeded);
    assert_eq!(site.end_of(first).await.operation.state, OperationState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_node_blocks_placements_and_the_release_until_it_is_reset() {
    let site = Site::of(2).await;
    let engine = &site.engines.engine;
    let id = deployed(&site).await;
    lose(&site, 1).await;
    let operation = give_up(&site, id, &named(&["gpu-2"])).await.unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!(ended.operation.state, OperationState::Succeeded, "{:?}", ended.operation.fault);
    assert_eq!(ended.workload.lifecycle, Lifecycle::Decommissioned);
    assert_eq!(ended.members[1].state.name(), MemberStateName::Removed);
    let node = node_of(&site, 1).await;
    let marked = &unproven(&node).expect("it is marked").finding;
    assert!(marked.detail.contains("unit-2 of workload train was given up by ada"), "{marked:?}");
    assert_eq!(marked.evidence.as_deref(), Some("reason: the machine burnt down"));
    assert!(unproven(&node_of(&site, 0).await).is_none());
    let filter = AuditFilter { action: Some(AuditAction::WorkloadDecommission), ..AuditFilter::default() };
    let audits = site.engines.store().read().await.unwrap().audits(&filter).await.unwrap();
    assert_eq!(audits[0].metadata["reason"], REASON);

    let options = placement::options(engine, &admin(), site.project, KIT, &Page::default()).await.unwrap();
    let reasons: Vec<Code> = options.iter().flat_map(|option| &option.reasons).map(|reason| reason.code).collect();
    assert!(reasons.contains(&Code::AllocationBlocked), "{reasons:?}");
    let release =
        async |at: usize| allocation::release(engine, &admin(), site.allocations[at], &Precondition::Any).await;
    release(0).await.expect("its removal is proven");
    let refused = release(1).await.unwrap_err();
    assert_eq!(refused.code(), Code::AllocationUnproven);
    assert!(refused.next().is_some_and(|next| next.contains("gpuaas node reset gpu-2 --force")), "{refused:?}");
    let by_force = Forced { reason: REASON.to_owned() };
    node::reset(engine, &admin(), site.nodes[1], &Precondition::Any, Some(&by_force)).await.unwrap();
    release(1).await.expect("nothing of the machine is trusted any more");
    let node = node_of(&site, 1).await;
    assert_eq!(
        (node.state, node.left_by_tenant.is_some()),
        (NodeState::Registered, true),
        "only a reimaged one returns"
    );
    node_removal::retire(engine, &admin(), site.nodes[1], &Precondition::Any).await.expect("it burnt down");
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_node_that_returns_is_inspected_and_is_free_if_it_is_clean() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    let id = deployed(&site).await;
    lose(&site, 0).await;
    let operation = give_up(&site, id, &named(&["unit-1"])).await.unwrap();
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Succeeded);
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut node = tx.node(site.nodes[0]).await.unwrap();
    node.support.push(TaskSupport { task: TaskType::Inspect.as_str().to_owned(), schemas: vec![1] });
    let support = node.support.clone();
    node.inspected_at = Some(engine.ports().clock.now());
    tx.update_node(&node).await.unwrap();
    tx.commit().await.unwrap();
    node::connected(engine, enrolled(site.nodes[0]), Uuid::from_u128(99), &hello(support)).await.unwrap();
    let mut dirty = clean();
    dirty["preflight"]["findings"] =
        json!([{ "check": "leftover", "severity": "blocking", "detail": "/var/lib/rancher", "fix": "reimage" }]);
    site.engines.nodes.end_tasks([done(dirty)]);
    inspect::inspect_new(engine, site.nodes[0]);
    eventually("it is not inspected", async || finding(&node_of(&site, 0).await, "leftover").is_some()).await;
    assert!(unproven(&node_of(&site, 0).await).is_some(), "it is not clean");
    site.engines.nodes.end_tasks([done(clean())]);
    inspect::inspect_new(engine, site.nodes[0]);
    eventually("it stays marked", async || unproven(&node_of(&site, 0).await).is_none()).await;
    allocation::release(engine, &admin(), site.allocations[0], &Precondition::Any).await.expect("it is clean");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_removed_is_given_up_by_force_and_nothing_else() {
    let site = Site::of(2).await;
    let id = deployed(&site).await;
    let code = async |ask: &GiveUp| give_up(&site, id, ask).await.unwrap_err().code();
    assert_eq!(code(&forced()).await, Code::StateConflict, "nothing was tried");
    assert_eq!(code(&named(&["gpu-2"])).await, Code::StateConflict, "its removal can be proven");
    assert_eq!(code(&named(&["gpu-9"])).await, Code::MemberUnknown);
    assert_eq!(code(&GiveUp { reason: None, ..forced() }).await, Code::FieldInvalid);
    assert_eq!(code(&GiveUp { reason: Some("two\nlines".to_owned()), ..forced() }).await, Code::FieldInvalid);
    assert_eq!(code(&named(&[])).await, Code::FieldInvalid, "a reason for nothing");

    site.engines.nodes.end_tasks([done(json!({})), failed(Code::HostFailed, "it stays")]);
    let ended = site
        .decommission_and_wait(id, |of| {
            vec![removing(task("first", of, 0)), needs(removing(task("second", of, 1)), &["first"])]
        })
        .await;
    assert_eq!(ended.operation.state, OperationState::NeedsAttention);
    let held = allocation::release(&site.engines.engine, &admin(), site.allocations[1], &Precondition::Any).await;
    let held = held.unwrap_err();
    assert_eq!(held.code(), Code::AllocationInUse);
    assert!(held.to_string().contains("it stays"), "it says why the node is held: {held}");
    let next = held.next().expect("what to do");
    for part in ["workload resume train --project", "workload decommission train --project", "--force --reason TEXT"] {
        assert!(next.contains(part) && !next.contains("first"), "its decommission has begun: {next}");
    }
    let operation = give_up(&site, id, &forced()).await.unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!(Value::from(ended.operation.parameters), json!({ "give_up": ["unit-2"], "reason": REASON }));
    assert_eq!(ended.workload.lifecycle, Lifecycle::Decommissioned);
    assert!(unproven(&node_of(&site, 1).await).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn inspection_that_began_before_the_member_was_given_up_proves_nothing() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    let id = deployed(&site).await;
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut node = tx.node(site.nodes[0]).await.unwrap();
    node.support.push(TaskSupport { task: TaskType::Inspect.as_str().to_owned(), schemas: vec![2] });
    tx.update_node(&node).await.unwrap();
    tx.commit().await.unwrap();
    let (sent, (end, reaction)) = (site.engines.nodes.sent(), hold("inspecting"));
    site.engines.nodes.react([reaction]);
    let (within, node) = (engine.clone(), site.nodes[0]);
    let inspection = tokio::spawn(async move { inspect::inspect(&within, &admin(), node).await });
    eventually("nothing is inspected", async || site.engines.nodes.sent() > sent).await;
    lose(&site, 0).await;
    let operation = give_up(&site, id, &named(&["gpu-1"])).await.unwrap();
    assert_eq!(site.end_of(operation).await.operation.state, OperationState::Succeeded);
    // On a very busy machine its deadline has passed by now, which proves nothing either.
    drop(end.send(done(clean())));
    drop(inspection.await.unwrap());
    assert!(unproven(&node_of(&site, 0).await).is_some(), "it looked for nothing that the member left");
    let release = allocation::release(engine, &admin(), site.allocations[0], &Precondition::Any).await;
    assert_eq!(release.unwrap_err().code(), Code::AllocationUnproven);
}
