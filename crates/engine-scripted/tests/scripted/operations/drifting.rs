//! Drift, and the reconciliations that the platform starts by itself.

use std::{sync::atomic::Ordering, time::Duration};

use gpuaas_engine::{
    Precondition, Revision,
    commands::{diff, workload},
};
use gpuaas_model::{
    ActorType, AuditAction, Code, EnrolledNode, EventKind, Lifecycle, NextAction, OperationId, OperationKind,
    OperationState, Recovery, StepState, WorkloadId,
};
use gpuaas_planner::{Difference, Drift, OperationRequest, StepSpec, WorkloadView};
use gpuaas_store::{AuditFilter, OperationRecord, WorkloadRecord};
use gpuaas_wire::session::TaskLine;
use serde_json::json;

use super::comparisons::ready;
use crate::{
    engines::{admin, eventually},
    kit::{AGAIN, needs, task, times},
    nodes::{Reaction, done, failed, hold},
    site::{Site, enrolled},
};

/// The unit of every member.
const UNIT: &str = "unit.service";

/// A deviation that a reconciliation corrects.
pub(super) fn changed_file() -> Difference {
    deviation(NextAction::reconcile("it writes the file again", "train"))
}

fn deviation(action: NextAction) -> Difference {
    Difference {
        member: None,
        field: "config".to_owned(),
        desired: "as written".to_owned(),
        observed: "it was changed".to_owned(),
        since: None,
        action,
    }
}

/// Two steps of the first member, one after the other.
pub(super) fn reconciling(of: &WorkloadView) -> Vec<StepSpec> {
    vec![task("configure", of, 0), needs(task("enable", of, 0), &["configure"])]
}

/// A reaction to the drift check that precedes a reconciliation.
pub(super) fn checked() -> Reaction {
    Reaction::Send(vec![TaskLine::Accepted, done(json!({}))])
}

/// Deploys a workload of one member, which is ready.
pub(super) async fn running(site: &Site) -> WorkloadId {
    let id = site.deploy_and_wait(ready).await.workload.id;
    site.engines.kit.set_plan(reconciling);
    id
}

pub(super) async fn hint(site: &Site) {
    site.engines.engine.drift_reported(enrolled(site.nodes[0]), UNIT).await.unwrap();
}

/// Lets the node of the member deviate, and hint it.
pub(super) async fn drift(site: &Site, difference: Difference) {
    *site.engines.kit.drifted.lock().unwrap() = vec![difference];
    hint(site).await;
}

pub(super) async fn row(site: &Site, id: WorkloadId) -> WorkloadRecord {
    site.engines.store().read().await.unwrap().workload(id).await.unwrap()
}

pub(super) async fn newest(site: &Site, id: WorkloadId) -> OperationRecord {
    site.engines.store().read().await.unwrap().newest_operation(id).await.unwrap().unwrap()
}

/// Waits for the reconciliation that the platform starts.
pub(super) async fn reconciliation(site: &Site, id: WorkloadId) -> OperationId {
    eventually("the platform does not reconcile", async || newest(site, id).await.by_platform.is_some()).await;
    newest(site, id).await.id
}

async fn change(site: &Site, id: WorkloadId, change: impl FnOnce(&mut WorkloadRecord)) {
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut record = tx.workload(id).await.unwrap();
    change(&mut record);
    tx.update_workload(&record).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn platform_reconciles_what_drifts_and_says_why() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let before = row(&site, id).await;
    drift(&site, changed_file()).await;
    let ended = site.end_of(reconciliation(&site, id).await).await;
    let operation = &ended.operation;
    assert_eq!((operation.kind, operation.state), (OperationKind::Reconcile, OperationState::Succeeded));
    assert_eq!(operation.requested_by, "control-plane");
    let reason = &operation.by_platform.as_ref().expect("it is the platform's").reason;
    assert_eq!(reason, "unit-1: config: it was changed");
    eventually("the difference stays", async || row(&site, id).await.drift.seen.is_empty()).await;
    let after = row(&site, id).await;
    assert_eq!((after.recovery, after.fault, after.drift.due_at), (Recovery::None, None, None));
    assert_eq!(after.generation, before.generation, "nothing that the tenant wants has changed");
    let filter = AuditFilter { action: Some(AuditAction::OperationStart), ..AuditFilter::default() };
    let audits = site.engines.store().read().await.unwrap().audits(&filter).await.unwrap();
    let [audit] = &audits[..] else { panic!("{audits:?}") };
    assert_eq!((audit.actor.as_str(), audit.actor_type), ("control-plane", ActorType::ControlPlane));
    assert_eq!((&audit.metadata["reason"], &audit.metadata["operation"]), (&json!(reason), &json!(operation.id)));
    let started = |event: &&gpuaas_store::EventRecord| {
        event.kind == EventKind::OperationStarted && event.subject_id == operation.id.to_string()
    };
    let event = ended.events.iter().find(started).expect("its event");
    assert_eq!((&event.data["reason"], &event.data["requested_by"]), (&json!(reason), &json!("control-plane")));
}

#[tokio::test(flavor = "multi_thread")]
async fn hint_without_a_difference_changes_nothing_and_foreign_hints_are_ignored() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let before = row(&site, id).await;
    let sent = site.engines.nodes.sent();
    let (engine, node) = (&site.engines.engine, site.nodes[0]);
    engine.drift_reported(EnrolledNode { node, epoch: 7 }, UNIT).await.unwrap();
    engine.drift_reported(enrolled(node), "ssh.service").await.unwrap();
    // Four times the delay of a drift check, in the time of these engines.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(site.engines.nodes.sent(), sent, "another enrollment, and a unit of no member");
    for _ in 0..10 {
        hint(&site).await;
    }
    eventually("the drift check does not begin", async || site.engines.nodes.sent() > sent).await;
    eventually("the drift check does not end", async || {
        let open = site.engines.store().read().await.unwrap().all_open_tasks().await.unwrap();
        open.is_empty()
    })
    .await;
    // A second one follows only if the machine is so busy that hints came after the first.
    assert!(site.engines.nodes.sent() <= sent + 2, "one drift check for all hints");
    assert_eq!((row(&site, id).await, newest(&site, id).await.kind), (before, OperationKind::Deploy));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_hints_without_end_is_checked_ever_more_rarely() {
    let site = Site::of(1).await;
    running(&site).await;
    let (sent, clock) = (site.engines.nodes.sent(), site.engines.engine.ports().clock.clone());
    let end = clock.now().plus(Duration::from_secs(60));
    while clock.now() < end {
        hint(&site).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let checks = site.engines.nodes.sent() - sent;
    assert!((1..=5).contains(&checks), "{checks} checks in a minute; every five seconds they would be twelve");
}

#[tokio::test(flavor = "multi_thread")]
async fn platform_stops_after_three_reconciliations_within_an_hour() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let now = site.engines.engine.ports().clock.now();
    change(&site, id, |workload| workload.drift.attempts = vec![now; 3]).await;
    drift(&site, changed_file()).await;
    eventually("it has no fault", async || row(&site, id).await.fault.is_some()).await;
    let workload = row(&site, id).await;
    let fault = workload.fault.expect("a fault");
    assert_eq!((fault.code.as_str(), workload.recovery), ("drift_persists", Recovery::ManualIntervention));
    assert_eq!(fault.next.command.as_deref(), Some("gpuaas workload reconcile train"));
    assert_eq!(newest(&site, id).await.kind, OperationKind::Deploy, "nothing was started");
    // A person reconciles, and the fault ends.
    let request = OperationRequest::of(OperationKind::Reconcile);
    let accepted =
        workload::start_operation(&site.engines.engine, &admin(), id, &Precondition::Any, request).await.unwrap();
    assert_eq!(site.end_of(accepted.operation.id).await.workload.fault, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_that_corrects_nothing_is_repeated_after_a_longer_wait() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    site.engines.kit.corrects_nothing.store(true, Ordering::SeqCst);
    drift(&site, changed_file()).await;
    let first = reconciliation(&site, id).await;
    assert_eq!(site.end_of(first).await.operation.state, OperationState::Succeeded);
    eventually("the next one is not due", async || row(&site, id).await.drift.due_at.is_some()).await;
    let workload = row(&site, id).await;
    assert_eq!((workload.recovery, workload.drift.attempts.len()), (Recovery::Reconciling, 1));
    let wait = workload.drift.due_at.expect("it is due").since(workload.drift.attempts[0]);
    assert!(wait >= Duration::from_secs(30), "{wait:?}");
    eventually("it is not repeated", async || newest(&site, id).await.id != first).await;
    assert_eq!(newest(&site, id).await.by_platform.map(|own| own.yields), Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_that_cannot_be_planned_counts_as_an_attempt() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    site.engines.kit.set_plan(|of| vec![needs(task("configure", of, 0), &["missing"])]);
    drift(&site, changed_file()).await;
    eventually("it is not counted", async || !row(&site, id).await.drift.attempts.is_empty()).await;
    assert_eq!(newest(&site, id).await.kind, OperationKind::Deploy, "nothing was started");
    site.engines.kit.set_plan(reconciling);
    let ended = site.end_of(reconciliation(&site, id).await).await;
    assert_eq!((ended.operation.state, ended.workload.drift.attempts.len()), (OperationState::Succeeded, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_that_no_reconciliation_corrects_is_a_fault_that_names_the_repair() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    drift(&site, deviation(NextAction::repair_member("it installs the program", "train", "unit-1"))).await;
    eventually("it has no fault", async || row(&site, id).await.fault.is_some()).await;
    let workload = row(&site, id).await;
    assert_eq!(workload.recovery, Recovery::RepairAvailable);
    let compared = diff::compare(&site.engines.engine, &admin(), id).await.unwrap().differences;
    assert_eq!(compared.iter().map(|found| found.field.as_str()).collect::<Vec<_>>(), ["config"]);
    let next = workload.fault.expect("a fault").next.command;
    assert_eq!(next.as_deref(), Some("gpuaas workload repair train --scope member --member unit-1"));
    site.engines.kit.drifted.lock().unwrap().clear();
    hint(&site).await;
    eventually("the fault stays", async || row(&site, id).await.fault.is_none()).await;
    assert_eq!((row(&site, id).await.recovery, newest(&site, id).await.kind), (Recovery::None, OperationKind::Deploy));
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_of_the_cluster_is_reconciled_like_that_of_a_node() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    site.engines.engine.drift_found(id, vec![changed_file()]).await.unwrap();
    let operation = site.end_of(reconciliation(&site, id).await).await.operation;
    assert_eq!(operation.by_platform.expect("the platform's").reason, "config: it was changed");
    // The cluster is compared after the operation.
    eventually("the difference stays", async || row(&site, id).await.drift.seen.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hint_leads_to_a_comparison_with_a_cluster_that_deviated() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let missing = deviation(NextAction::repair_member("it registers again", "train", "unit-1"));
    site.engines.engine.drift_found(id, vec![missing]).await.unwrap();
    assert!(row(&site, id).await.fault.is_some());
    // As after the repair: the cluster shows nothing any more, and nothing that was seen before counts.
    hint(&site).await;
    eventually("the fault stays", async || row(&site, id).await.fault.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_reconciles_what_its_predecessor_had_found() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    site.engines.engine.stop();
    site.engines.engine.leave().await.unwrap();
    // What the predecessor recorded before it died.
    let (now, member) = (site.engines.engine.ports().clock.now(), {
        let members = site.engines.store().read().await.unwrap().members_of(id).await.unwrap();
        members[0].id
    });
    *site.engines.kit.drifted.lock().unwrap() = vec![changed_file()];
    let source = gpuaas_planner::drift::DriftSource::Node(member);
    let seen = Drift::default().with(source, vec![changed_file()], now);
    change(&site, id, |workload| workload.drift = Drift { due_at: Some(now), ..seen }).await;
    let successor = site.engines.successor().await;
    successor.join().await.unwrap();
    let engine = successor.clone();
    tokio::spawn(async move { engine.run().await });
    let ended = site.end_of(reconciliation(&site, id).await).await;
    assert_eq!(ended.operation.state, OperationState::Succeeded);
    eventually("the difference stays", async || row(&site, id).await.drift.seen.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_checked_after_an_operation_and_not_during_it() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let (end, reaction) = hold("upgrading");
    site.engines.nodes.react([reaction]);
    site.engines.kit.set_plan(|of| vec![task("upgrade", of, 0)]);
    let person = admin();
    let accepted = workload::start_operation(
        &site.engines.engine,
        &person,
        id,
        &Precondition::Any,
        OperationRequest {
            kind: OperationKind::Upgrade,
            parameters: [("version".to_owned(), json!("2"))].into_iter().collect(),
        },
    );
    let upgrade = accepted.await.unwrap().operation.id;
    site.until(upgrade, "upgrade", |step| step.detail.is_some()).await;
    let sent = site.engines.nodes.sent();
    drift(&site, changed_file()).await;
    site.engines.engine.drift_found(id, vec![changed_file()]).await.unwrap();
    // Four times the delay of a drift check, in the time of these engines.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((site.engines.nodes.sent(), row(&site, id).await.drift), (sent, Drift::default()));
    site.engines.kit.set_plan(reconciling);
    end.send(done(json!({}))).unwrap();
    assert_eq!(site.end_of(upgrade).await.operation.state, OperationState::Succeeded);
    let ended = site.end_of(reconciliation(&site, id).await).await;
    assert_eq!((ended.operation.state, ended.workload.lifecycle), (OperationState::Succeeded, Lifecycle::Running));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reconciled_while_a_person_can_resume_an_operation() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let mut tx = site.engines.store().begin().await.unwrap();
    let ended = tx.newest_operation(id).await.unwrap().unwrap();
    let attention = OperationRecord { state: OperationState::NeedsAttention, ..ended.clone() };
    tx.update_operation(&attention, ended.state).await.unwrap();
    tx.commit().await.unwrap();
    drift(&site, changed_file()).await;
    eventually("nothing is found", async || !row(&site, id).await.drift.seen.is_empty()).await;
    let workload = row(&site, id).await;
    assert_eq!((workload.drift.due_at, newest(&site, id).await.id), (None, ended.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn etag_from_before_a_reconciliation_still_matches_and_one_from_before_a_change_does_not() {
    let site = Site::of(1).await;
    let id = running(&site).await;
    let seen = Precondition::Revisions(vec![Revision::from(&row(&site, id).await)]);
    drift(&site, changed_file()).await;
    site.end_of(reconciliation(&site, id).await).await;
    eventually("the difference stays", async || row(&site, id).await.drift.seen.is_empty()).await;
    let preview = async || {
        let request = OperationRequest::of(OperationKind::Reconcile);
        workload::preview_operation(&site.engines.engine, &admin(), id, &seen, &request).await.map(drop)
    };
    assert_eq!(preview().await, Ok(()));
    change(&site, id, |workload| workload.config = json!({ "other": true })).await;
    let refused = preview().await.expect_err("the settings changed");
    assert_eq!(gpuaas_model::Coded::code(&refused), Code::PreconditionFailed);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_repeats_no_step_on_a_node_that_was_lost_meanwhile() {
    for (is_lost, expected) in [(false, (StepState::Succeeded, 2)), (true, (StepState::Failed, 1))] {
        let site = Site::of(1).await;
        let id = running(&site).await;
        site.engines.kit.set_plan(|of: &WorkloadView| {
            let sparing = |step| StepSpec { spares_member: true, retry: times(3), ..step };
            reconciling(of).into_iter().map(sparing).collect()
        });
        let (end, reaction) = hold("writing");
        site.engines.nodes.react([checked(), reaction]);
        drift(&site, changed_file()).await;
        let operation = reconciliation(&site, id).await;
        site.until(operation, "configure", |step| step.detail.is_some()).await;
        if is_lost {
            site.disconnect(0).await;
            site.mark_unreachable(0).await;
        }
        end.send(failed(Code::TaskTimedOut, AGAIN)).unwrap();
        let ended = site.end_of(operation).await;
        let step = &ended.steps["configure"];
        assert_eq!((step.state, step.attempts), expected, "lost: {is_lost}");
    }
}
