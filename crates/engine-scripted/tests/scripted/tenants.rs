//! Nodes that pass to another tenant: nothing of the former tenant reaches them.

use gpuaas_engine::{
    Precondition,
    commands::{
        allocation,
        logs::{self, LogSelection},
        node::{self, Forced},
        placement, project, workload,
    },
};
use gpuaas_model::{
    AllocationId, AllocationState, Code, Coded, Connectivity, Lifecycle, LogSource, MemberEvent, MemberStateName,
    NodeId, NodeState, OperationKind, OperationState, ProjectId, SecretId, StepState,
};
use gpuaas_planner::{OperationRequest, StepSpec, WorkloadView};
use gpuaas_store::{Page, SecretRecord, TaskFilter};
use uuid::Uuid;

use crate::{
    engines::{admin, eventually},
    kit::{KIT, milestone, needs, task},
    nodes::{done, failed, hold},
    site::{Ended, Site},
};

/// Plans the removal of every member in the view: one task each, in sequence.
fn removal(of: &WorkloadView) -> Vec<StepSpec> {
    let key = |at: usize| format!("{}/remove", of.members[at].name);
    let step = |at: usize| {
        let before = at.checked_sub(1).map(key);
        let step = needs(task(&key(at), of, at), &before.iter().map(String::as_str).collect::<Vec<_>>());
        StepSpec { on_first_start: Some(MemberEvent::Remove), on_success: Some(MemberEvent::Removed), ..step }
    };
    (0..of.members.len()).map(step).chain([milestone("removed")]).collect()
}

/// Creates a workload of two members; the first is removed, and the removal of the second has failed.
async fn half_removed_workload(site: &Site) -> Ended {
    let deployed =
        site.deploy_and_wait(|of| vec![task("first", of, 0), needs(task("second", of, 1), &["first"])]).await;
    site.engines.nodes.end_tasks([done(serde_json::json!({})), failed(Code::HostFailed, "it stays")]);
    let ended = site.decommission_and_wait(deployed.workload.id, removal).await;
    assert_eq!(ended.operation.state, OperationState::NeedsAttention);
    assert_eq!(ended.members[0].state.name(), MemberStateName::Removed);
    ended
}

/// Releases and resets the first node, enrolls it again and allocates it to another project.
async fn hand_over(site: &Site) -> (ProjectId, AllocationId) {
    let engine = &site.engines.engine;
    allocation::release(engine, &admin(), site.allocations[0], &Precondition::Any).await.unwrap();
    node::reset(engine, &admin(), site.nodes[0], &Precondition::Any, None).await.unwrap();
    let other = project::create(engine, &admin(), "other".parse().unwrap()).await.unwrap().id;
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut node = tx.node(site.nodes[0]).await.unwrap();
    node.epoch += 1;
    (node.state, node.connectivity) = (NodeState::Active, Connectivity::Connected);
    tx.update_node(&node).await.unwrap();
    let held = site.active_allocation(1_000, other, node.id);
    tx.insert_allocation(&held).await.unwrap();
    tx.commit().await.unwrap();
    (other, held.id)
}

#[tokio::test]
async fn node_of_a_failed_decommission_is_reset_by_force_and_the_decommission_resumes() {
    let site = Site::of(2).await;
    let (engine, id, forced) = (&site.engines.engine, site.nodes[1], Forced { reason: "residue".to_owned() });
    let ended = half_removed_workload(&site).await;
    let state = async || site.engines.store().read().await.unwrap().node(id).await.unwrap().state;
    let refused = node::reset(engine, &admin(), id, &Precondition::Any, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::StateConflict, "only by force");
    let dry = admin().with_dry_run(true);
    let (shown, _) = node::reset(engine, &dry, id, &Precondition::Any, Some(&forced)).await.unwrap();
    assert_eq!((shown.state, state().await), (NodeState::Registered, NodeState::Active), "a dry run changes nothing");
    node::reset(engine, &admin(), id, &Precondition::Any, Some(&forced)).await.unwrap();
    assert_eq!(state().await, NodeState::Registered);
    // Its reimaged machine enrolls.
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut reimaged = tx.node(id).await.unwrap();
    reimaged.epoch += 1;
    (reimaged.state, reimaged.connectivity) = (NodeState::Active, Connectivity::Connected);
    tx.update_node(&reimaged).await.unwrap();
    tx.commit().await.unwrap();
    site.engines.nodes.end_tasks([done(serde_json::json!({}))]);
    assert_eq!(site.resume_and_wait(ended.workload.id).await.operation.state, OperationState::Succeeded);
}

#[tokio::test]
async fn node_of_a_failed_removal_is_reset_by_force_and_no_other_one() {
    let site = Site::of(2).await;
    let (engine, forced) = (&site.engines.engine, Forced { reason: "residue".to_owned() });
    let deployed =
        site.deploy_and_wait(|of| vec![task("first", of, 0), needs(task("second", of, 1), &["first"])]).await;
    site.engines.kit.set_plan(|of| removal(of).into_iter().take(1).collect());
    site.engines.nodes.end_tasks([failed(Code::HostFailed, "it stays")]);
    let parameters = serde_json::json!({ "version": "v2" }).as_object().unwrap().clone();
    let request = OperationRequest { kind: OperationKind::Upgrade, parameters };
    let id = deployed.workload.id;
    let accepted = workload::start_operation(engine, &admin(), id, &Precondition::Any, request).await.unwrap();
    let ended = site.end_of(accepted.operation.id).await;
    assert_eq!(ended.operation.state, OperationState::NeedsAttention);
    let reset = async |at: usize| {
        let node = site.nodes[at];
        node::reset(engine, &admin(), node, &Precondition::Any, Some(&forced)).await.map(|(node, _)| node.state)
    };
    assert_eq!(reset(1).await.unwrap_err().code(), Code::AllocationInUse, "the removal has not begun there");
    assert_eq!(reset(0).await.unwrap(), NodeState::Registered);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_of_a_member_that_was_removed_earlier_is_not_asked_to_observe() {
    let site = Site::of(2).await;
    let (engine, nodes) = (&site.engines.engine, &site.engines.nodes);
    let deployed = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    let upgrade = async || {
        let parameters = serde_json::json!({ "version": "v2" }).as_object().unwrap().clone();
        let request = OperationRequest { kind: OperationKind::Upgrade, parameters };
        let id = deployed.workload.id;
        let accepted = workload::start_operation(engine, &admin(), id, &Precondition::Any, request).await.unwrap();
        assert_eq!(site.end_of(accepted.operation.id).await.operation.state, OperationState::Succeeded);
    };
    site.engines.kit.set_plan(|of| removal(of).into_iter().take(1).collect());
    upgrade().await;
    site.engines.kit.set_plan(|_| vec![milestone("upgraded")]);
    upgrade().await;
    let asked = |node: usize| nodes.observed.lock().unwrap().iter().filter(|asked| **asked == site.nodes[node]).count();
    eventually("the end of each operation", async || asked(1) == 3).await;
    assert_eq!(asked(0), 2, "after the deployment, and after the operation that removed its member");
}

#[tokio::test]
async fn node_of_a_running_workload_is_not_reset_by_force() {
    let site = Site::of(1).await;
    site.deploy_and_wait(|of| vec![task("first", of, 0)]).await;
    let forced = Forced { reason: "residue".to_owned() };
    let refused = node::reset(&site.engines.engine, &admin(), site.nodes[0], &Precondition::Any, Some(&forced)).await;
    assert_eq!(refused.unwrap_err().code(), Code::AllocationInUse);
}

async fn tasks_on(site: &Site, node: usize) -> usize {
    let filter = TaskFilter { node: Some(site.nodes[node]), ..TaskFilter::default() };
    site.engines.store().read().await.unwrap().tasks(&filter).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_signs_no_task_for_a_node_of_another_tenant() {
    let site = Site::of(2).await;
    let ended = half_removed_workload(&site).await;
    hand_over(&site).await;
    let before = tasks_on(&site, 0).await;
    site.engines.kit.set_plan(removal);
    let resumed = workload::resume(&site.engines.engine, &admin(), ended.workload.id, &Precondition::Any).await;
    let again = site.end_of(resumed.unwrap().operation.id).await;
    assert_eq!(tasks_on(&site, 0).await, before, "a task was signed for the next tenant's node");
    assert_eq!(again.operation.state, OperationState::Succeeded, "the remaining member is removed");
    assert_eq!(again.operation.targets, [again.members[1].id]);
}

/// The app plans a task for a removed member, which is not a target of the operation.
#[tokio::test(flavor = "multi_thread")]
async fn plan_with_a_task_for_a_removed_member_is_refused() {
    let site = Site::of(2).await;
    let ended = half_removed_workload(&site).await;
    let removed = ended.members[0].clone();
    site.engines.kit.set_plan(move |of| {
        let step = task("again", of, 0);
        let action = gpuaas_planner::StepAction::NodeTask {
            node: removed.place.node().unwrap(),
            task: gpuaas_model::TaskType::Noop,
        };
        vec![StepSpec { member: Some(removed.id), action, ..step }]
    });
    let resumed = workload::resume(&site.engines.engine, &admin(), ended.workload.id, &Precondition::Any).await;
    assert_eq!(resumed.expect_err("the plan is invalid").code(), Code::Internal);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_is_not_signed_after_the_allocation_was_released() {
    let site = Site::of(1).await;
    let (end, reaction) = hold("unpacking");
    site.engines.nodes.react([reaction]);
    let (_, operation) = site.deploy(|of| vec![task("first", of, 0), needs(task("second", of, 0), &["first"])]).await;
    site.until(operation, "first", |step| step.state == StepState::Running && step.detail.is_some()).await;
    // The engine never writes these rows: it does not release an allocation that a member uses.
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut held = tx.allocation(site.allocations[0]).await.unwrap();
    held.state = AllocationState::Released;
    tx.update_allocation(&held).await.unwrap();
    tx.commit().await.unwrap();
    end.send(done(serde_json::json!({}))).unwrap();
    let ended = site.end_of(operation).await;
    assert_eq!(tasks_on(&site, 0).await, 1, "the second step's task was signed");
    assert_eq!(ended.steps["second"].state, StepState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_of_a_removed_member_does_not_open() {
    let site = Site::of(2).await;
    let ended = half_removed_workload(&site).await;
    hand_over(&site).await;
    let opened = logs::open(&site.engines.engine, &admin(), ended.workload.id, "unit-1", None).await;
    let refused = opened.expect_err("the next tenant's journal opens");
    assert_eq!(refused.code(), Code::NodeNotAllocated);
    let opened = logs::open(&site.engines.engine, &admin(), ended.workload.id, "unit-2", None).await.unwrap();
    assert_eq!(opened.access.node().node, site.nodes[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_workload_report_the_removed_member_and_read_the_others() {
    let site = Site::of(2).await;
    let (id, engine) = (half_removed_workload(&site).await.workload.id, &site.engines.engine);
    hand_over(&site).await;
    let all = LogSelection { sources: LogSource::ALL.to_vec(), ..LogSelection::default() };
    let opened = logs::open_workload(engine, &admin(), id, &all).await.unwrap();
    let mut journals: Vec<(String, Result<NodeId, Code>)> = Vec::new();
    for journal in opened.journals {
        let access = journal.access.map(|access| access.node().node).map_err(|refused| refused.code());
        journals.push((journal.name, access));
    }
    journals.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("unit-1", Err(Code::NodeNotAllocated)), ("unit-2", Ok(site.nodes[1]))];
    assert_eq!(journals, expected.map(|(name, access)| (name.to_owned(), access)));

    let named = LogSelection { members: vec!["unit-2".into(), "unit-2".into()], ..all.clone() };
    let opened = logs::open_workload(engine, &admin(), id, &named).await.unwrap();
    assert_eq!(opened.journals.len(), 1, "a member that is named twice is read once");
    let events = LogSelection { sources: vec![LogSource::Event], ..all.clone() };
    assert!(logs::open_workload(engine, &admin(), id, &events).await.unwrap().journals.is_empty());
    for (wrong, code, field) in [
        (LogSelection { members: vec!["unit-9".into()], ..all.clone() }, Code::NotFound, "member"),
        (LogSelection { unit: Some("sshd.service".into()), ..all }, Code::FieldInvalid, "unit"),
    ] {
        let refused = logs::open_workload(engine, &admin(), id, &wrong).await.expect_err("it is opened");
        assert_eq!((refused.code(), refused.field().as_deref()), (code, Some(field)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn placement_options_exclude_failed_allocations() {
    let site = Site::of(2).await;
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut failed = tx.allocation(site.allocations[0]).await.unwrap();
    failed.state = AllocationState::Failed;
    tx.update_allocation(&failed).await.unwrap();
    tx.commit().await.unwrap();
    let options =
        placement::options(&site.engines.engine, &admin(), site.project, KIT, &Page::default()).await.unwrap();
    let offered: Vec<AllocationId> = options.iter().map(|option| option.allocation.id).collect();
    assert_eq!(offered, [site.allocations[1]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn illegal_transition_fails_its_step_with_its_own_code() {
    let site = Site::of(1).await;
    let ended = site
        .deploy_and_wait(|of| {
            let drained = StepSpec { on_first_start: Some(MemberEvent::Drained), ..task("drained", of, 0) };
            vec![drained]
        })
        .await;
    let fault = ended.steps["drained"].fault.as_ref().map(|fault| fault.code.as_str());
    assert_eq!((ended.steps["drained"].state, fault), (StepState::Failed, Some("illegal_transition")));
    assert_eq!(site.engines.nodes.sent(), 0, "no task is sent for an illegal step");
    let ended = site
        .decommission_and_wait(ended.workload.id, |of| {
            vec![StepSpec { on_success: Some(MemberEvent::Drained), ..task("ends", of, 0) }]
        })
        .await;
    let fault = ended.steps["ends"].fault.as_ref().map(|fault| fault.code.as_str());
    assert_eq!((ended.steps["ends"].state, fault), (StepState::Failed, Some("illegal_transition")));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_a_workload_end_with_its_decommission() {
    let site = Site::of(2).await;
    let deployed =
        site.deploy_and_wait(|of| vec![task("first", of, 0), needs(task("second", of, 1), &["first"])]).await;
    let workload = deployed.workload.id;
    let engine = &site.engines.engine;
    let id = SecretId::from_uuid(Uuid::from_u128(2_000));
    let kept = SecretRecord {
        id,
        workload: Some(workload),
        name: "join-token".to_owned(),
        sha256: String::new(),
        sealed: engine.keys().seal(id, b"what joins").unwrap(),
        created_at: engine.ports().clock.now(),
    };
    let mut tx = site.engines.store().begin().await.unwrap();
    tx.put_secret(&kept).await.unwrap();
    tx.commit().await.unwrap();
    site.engines.nodes.end_tasks([done(serde_json::json!({})), done(serde_json::json!({}))]);
    let ended = site.decommission_and_wait(workload, removal).await;
    assert_eq!(ended.workload.lifecycle, Lifecycle::Decommissioned);
    assert_eq!(site.engines.store().read().await.unwrap().secrets_of(workload).await.unwrap(), []);
}
