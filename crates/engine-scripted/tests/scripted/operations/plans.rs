//! The plan that was shown is the one that runs.

use gpuaas_engine::{
    Caller, CommandError, Engine, Precondition,
    commands::{
        artifact,
        workload::{self, Preview, parse_digest},
    },
};
use gpuaas_model::{
    AuditAction, Code, Coded, Fault, FaultClass, MemberState, MemberStateName, NextAction, OperationKind,
    OperationState, StreamName, WorkloadId,
};
use gpuaas_planner::{OperationRequest, PlanDigest, StepSpec, WorkloadView};
use gpuaas_store::{AuditFilter, EventRecord};
use serde_json::json;

use crate::{
    engines::admin,
    kit::{KIT, milestone, task},
    nodes::failed,
    site::Site,
};

const ANY: &Precondition = &Precondition::Any;

fn expecting(digest: &PlanDigest) -> Caller {
    admin().expecting(Some(digest.clone()))
}

fn upgrade(version: &str) -> OperationRequest {
    let parameters = json!({ "version": version }).as_object().unwrap().clone();
    OperationRequest { kind: OperationKind::Upgrade, parameters }
}

/// One task for each member.
fn on_each(of: &WorkloadView) -> Vec<StepSpec> {
    (0..of.members.len()).map(|at| task(&format!("{}/work", of.members[at].name), of, at)).collect()
}

/// Everything that an accepted command would add or change.
async fn written(site: &Site, id: Option<WorkloadId>) -> (Vec<EventRecord>, usize, Option<String>) {
    let mut reader = site.engines.store().read().await.unwrap();
    let events = reader.events(StreamName::Project(site.project), 0, 1_000).await.unwrap();
    let audits = reader.audits(&AuditFilter::default()).await.unwrap().len();
    let rows = match id {
        Some(id) => Some(format!(
            "{:?} {:?} {:?}",
            reader.workload(id).await.unwrap(),
            reader.members_of(id).await.unwrap(),
            reader.newest_operation(id).await.unwrap()
        )),
        None => None,
    };
    (events, audits, rows)
}

/// Expects `plan_changed`, and that nothing was written. Returns the fields of the differences, and the error.
async fn refused<T>(
    site: &Site,
    id: Option<WorkloadId>,
    command: impl Future<Output = Result<T, CommandError>>,
) -> (Vec<String>, CommandError) {
    let before = written(site, id).await;
    let error = command.await.err().expect("another plan would run");
    assert_eq!(written(site, id).await, before, "a refusal writes nothing");
    assert_eq!((error.code(), error.field().as_deref()), (Code::PlanChanged, Some("plan_digest")), "{error}");
    assert!(error.next().is_some_and(|next| next.contains("--plan")));
    assert!(error.reasons().iter().all(|reason| reason.code == Code::PlanChanged && !reason.detail.is_empty()));
    (error.reasons().iter().map(|reason| reason.field.clone()).collect(), error)
}

async fn preview_upgrade(engine: &Engine, id: WorkloadId, version: &str) -> Preview {
    workload::preview_operation(engine, &admin(), id, ANY, &upgrade(version)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_accepts_the_digest_of_its_preview() {
    let site = Site::of(3).await;
    let engine = &site.engines.engine;
    let ask = || workload::Deploy { intent: json!(site.allocations[..2]), ..site.request() };
    site.engines.kit.set_plan(on_each);

    let shown = workload::preview_deploy(engine, &admin(), ask()).await.unwrap();
    let again = workload::preview_deploy(engine, &expecting(&shown.digest), ask()).await.unwrap();
    assert_eq!((again.digest.clone(), again.outline), (shown.digest.clone(), shown.outline), "ids are not in it");
    let accepted = workload::deploy(engine, &expecting(&shown.digest), ask()).await.unwrap();
    let id = site.end_of(accepted.operation.id).await.workload.id;

    let more = json!([site.allocations[2]]);
    let shown = workload::preview_add_member(engine, &admin(), id, ANY, more.clone()).await.unwrap();
    assert_eq!(shown.outline.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["unit-3"]);
    let accepted = workload::add_member(engine, &expecting(&shown.digest), id, ANY, more).await.unwrap();
    site.end_of(accepted.operation.id).await;

    site.engines.nodes.end_tasks([failed(Code::HostFailed, "broken")]);
    site.engines.kit.set_plan(|of| vec![task("install", of, 0)]);
    let shown = preview_upgrade(engine, id, "v2").await;
    assert_eq!(shown.outline.interrupts(), ["install interrupts"]);
    let accepted = workload::start_operation(engine, &expecting(&shown.digest), id, ANY, upgrade("v2")).await.unwrap();
    assert_eq!(site.end_of(accepted.operation.id).await.operation.state, OperationState::NeedsAttention);

    let shown = workload::preview_resume(engine, &admin(), id, ANY).await.unwrap();
    assert_eq!((shown.plan.kind, shown.outline.resumes), (OperationKind::Upgrade, Some(accepted.operation.id)));
    let accepted = workload::resume(engine, &expecting(&shown.digest), id, ANY).await.unwrap();
    assert_eq!(site.end_of(accepted.operation.id).await.operation.state, OperationState::Succeeded);

    let shown = workload::preview_decommission(engine, &admin(), id, ANY).await.unwrap();
    assert_eq!(shown.outline.members.len(), 3);
    let accepted = workload::decommission(engine, &expecting(&shown.digest), id, ANY).await.unwrap();
    site.end_of(accepted.operation.id).await;
    let audits = site.engines.store().read().await.unwrap().audits(&AuditFilter::default()).await.unwrap();
    let removal = audits.iter().find(|record| record.action == AuditAction::WorkloadDecommission).unwrap();
    assert_eq!(removal.metadata["plan_digest"], json!(shown.digest), "the audit says what was agreed to");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_imported_meanwhile_and_other_settings_are_named() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    site.engines.kit.set_plan(on_each);
    let shown = workload::preview_deploy(engine, &admin(), site.request()).await.unwrap();
    let other = workload::Deploy { config: json!({ "label": "x" }), ..site.request() };
    let (fields, _) = Box::pin(refused(&site, None, workload::deploy(engine, &expecting(&shown.digest), other))).await;
    assert_eq!(fields, ["config"]);
    let release = artifact::VerifiedRelease {
        app: KIT.to_owned(),
        version: "2".to_owned(),
        files: vec![("kit.tar".to_owned(), "1".repeat(64), 1)],
        source: "a test".to_owned(),
        stand_in: true,
    };
    artifact::record(engine, &admin(), release).await.unwrap();
    let (fields, error) =
        Box::pin(refused(&site, None, workload::deploy(engine, &expecting(&shown.digest), site.request()))).await;
    assert_eq!(fields, ["version", "release"]);
    assert_eq!(error.reasons()[0].detail, "2 instead of 1");
    let of_first = workload::Deploy { version: Some("1".to_owned()), ..site.request() };
    workload::deploy(engine, &expecting(&shown.digest), of_first).await.expect("the plan that was shown");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_operation_and_other_parameters_are_named() {
    let site = Site::of(3).await;
    let engine = &site.engines.engine;
    site.engines.kit.set_plan(on_each);
    let ask = workload::Deploy { intent: json!(site.allocations[..2]), ..site.request() };
    let id = workload::deploy(engine, &admin(), ask).await.unwrap();
    let id = site.end_of(id.operation.id).await.workload.id;
    let removal = workload::preview_decommission(engine, &admin(), id, ANY).await.unwrap().digest;
    let change = preview_upgrade(engine, id, "v2").await.digest;
    let expected = expecting(&change);
    let start = |version| workload::start_operation(engine, &expected, id, ANY, upgrade(version));
    let (fields, _) = Box::pin(refused(&site, Some(id), start("v3"))).await;
    assert_eq!(fields, ["parameters"]);
    let added = workload::add_member(engine, &admin(), id, ANY, json!([site.allocations[2]])).await.unwrap();
    site.end_of(added.operation.id).await;
    let changed = ["members[unit-3]", "steps[unit-3/work]"];
    let remover = expecting(&removal);
    let (fields, error) = Box::pin(refused(&site, Some(id), workload::decommission(engine, &remover, id, ANY))).await;
    assert_eq!(fields, changed);
    assert_eq!(error.reasons()[1].detail, "added: it would do unit-3/work (gpu-3)");
    let (fields, _) =
        Box::pin(refused(&site, Some(id), workload::preview_decommission(engine, &remover, id, ANY))).await;
    assert_eq!(fields, changed, "a dry run says the same");
    let (fields, _) = Box::pin(refused(&site, Some(id), start("v2"))).await;
    assert_eq!(fields, changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_state_of_a_member_is_named() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    let id = site.deploy_and_wait(on_each).await.workload.id;
    let digest = preview_upgrade(engine, id, "v2").await.digest;
    let mut tx = site.engines.store().begin().await.unwrap();
    let mut member = tx.members_of(id).await.unwrap().remove(0);
    let fault = Fault {
        code: "it_broke".to_owned(),
        class: FaultClass::Manual,
        summary: "it broke".to_owned(),
        evidence: None,
        next: NextAction::text("look"),
    };
    member.state = MemberState::Failed { since: engine.ports().clock.now(), fault };
    tx.update_member(&member, MemberStateName::Pending).await.unwrap();
    tx.commit().await.unwrap();
    let expected = expecting(&digest);
    let started = workload::start_operation(engine, &expected, id, ANY, upgrade("v2"));
    let (fields, error) = Box::pin(refused(&site, Some(id), started)).await;
    assert_eq!(fields, ["members[unit-1]"]);
    assert_eq!(error.reasons()[0].detail, "failed instead of pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_that_another_replica_has_shown_holds_there_and_its_refusal_lists_the_present_steps() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    let id = site.deploy_and_wait(on_each).await.workload.id;
    let other = site.engines.one_hour_behind().await;
    let digest = preview_upgrade(&other, id, "v2").await.digest;
    assert_eq!(preview_upgrade(engine, id, "v2").await.digest, digest, "the same at any time and in every replica");
    let unknown = parse_digest(&format!("plan-{}", "0".repeat(32))).unwrap();
    let expected = expecting(&unknown);
    let started = workload::start_operation(engine, &expected, id, ANY, upgrade("v2"));
    let (fields, error) = Box::pin(refused(&site, Some(id), started)).await;
    assert_eq!(fields, ["steps[unit-1/work]"]);
    assert!(error.to_string().contains(digest.as_str()), "it names the present digest: {error}");
    workload::start_operation(engine, &expecting(&digest), id, ANY, upgrade("v2")).await.expect("it holds here");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_plan_is_shown_while_an_operation_is_under_way() {
    let site = Site::of(1).await;
    let engine = &site.engines.engine;
    let id = site.deploy_and_wait(on_each).await.workload.id;
    site.engines.kit.set_plan(|_| vec![crate::kit::call("waits", "hangs")]);
    let open = workload::start_operation(engine, &admin(), id, ANY, upgrade("v2")).await.unwrap();
    let shown = workload::preview_decommission(engine, &admin(), id, ANY).await;
    assert_eq!(shown.expect_err("it would be refused").code(), Code::OperationInProgress);
    site.cancel(open.operation.id).await;
    site.end_of(open.operation.id).await;
    site.engines.kit.set_plan(|_| vec![milestone("removed")]);
    workload::preview_decommission(engine, &admin(), id, ANY).await.expect("it has ended");
}

#[test]
fn ill_formed_digest_names_its_field() {
    for text in ["", "plan-", "plan-xyz", "plan-9F86D081884C7D659A2FEAA0C55AD015", &"0".repeat(64)] {
        let refused = parse_digest(text).expect_err("no plan has it");
        assert_eq!((refused.code(), refused.field().as_deref()), (Code::FieldInvalid, Some("plan_digest")));
        assert!(refused.next().is_some());
    }
}
