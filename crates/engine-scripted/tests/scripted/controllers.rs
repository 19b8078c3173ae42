//! Controllers: service accounts of one workload, and what their reports change.

use gpuaas_engine::{
    Caller, CommandError, Precondition,
    commands::{
        report::{self, Accepted},
        service_account, token, workload,
    },
};
use gpuaas_model::{
    AuditAction, Code, Coded, EventKind, Health, Lifecycle, MemberEvent, MemberStateName, OperationKind, Principal,
    Progress, Role, Timestamp, TokenId, WorkloadId,
};
use gpuaas_planner::{
    OperationRequest, StepSpec, WorkloadView,
    report::{Report, ReportedMember},
};
use gpuaas_store::{MemberRecord, ServiceAccountRecord, WorkloadRecord, WorkloadReportRecord};
use gpuaas_wire::task::UnitReport;
use serde_json::json;
use uuid::Uuid;

use crate::{
    engines::admin,
    kit::{SERVING, call, milestone, needs, task},
    nodes::done,
    site::{Site, enrolled},
};

/// A running workload with two members, of which the first `ready` ones are ready, and its controller.
struct Controlled {
    site: Site,
    id: WorkloadId,
    account: ServiceAccountRecord,
}

impl Controlled {
    async fn with_ready(ready: usize) -> Self {
        let site = Site::of(2).await;
        site.engines.nodes.end_tasks(vec![done(json!({})); 2 * ready]);
        let deployed = site.deploy_and_wait(move |of| steps(of, ready)).await;
        assert_eq!(deployed.workload.lifecycle, Lifecycle::Running);
        let id = deployed.workload.id;
        let account = created(&site, "watcher", (Role::AppController, Some(id))).await.expect("made");
        Self { site, id, account }
    }

    fn caller(&self) -> Caller {
        let ServiceAccountRecord { id, project, role, workload, .. } = self.account;
        let (token, name) = (TokenId::from_uuid(Uuid::from_u128(9)), "service-account/watcher".to_owned());
        let (project, service_account) = (Some(project), Some(id));
        Caller { principal: Principal { token, name, role, project, service_account, workload }, ..admin() }
    }

    async fn report(&self, report: &Report) -> Result<Accepted, CommandError> {
        report::report(&self.site.engines.engine, &self.caller(), self.id, report).await
    }

    async fn reports(&self, health: Health) -> Accepted {
        self.report(&of_first(health)).await.expect("accepted")
    }

    async fn rows(&self) -> (WorkloadRecord, Vec<MemberRecord>, Option<WorkloadReportRecord>) {
        let mut reader = self.site.engines.store().read().await.unwrap();
        let workload = reader.workload(self.id).await.unwrap();
        let members = reader.members_of(self.id).await.unwrap();
        (workload, members, reader.workload_report(self.id).await.unwrap())
    }

    /// The health of the first member and of the workload, with the code of the member's fault.
    async fn health(&self) -> (Health, Health, Option<String>) {
        let (workload, members, _) = self.rows().await;
        (members[0].health, workload.health, members[0].fault.as_ref().map(|fault| fault.code.clone()))
    }

    /// Lets the first member's node report its unit.
    async fn unit(&self, active: &str) {
        let unit = UnitReport {
            unit: "unit.service".to_owned(),
            active: active.to_owned(),
            sub: String::new(),
            result: String::new(),
            n_restarts: 0,
            exec_main_status: 0,
            since: Timestamp::from_millis(1),
        };
        self.site.engines.engine.units_changed(enrolled(self.site.nodes[0]), &[unit]).await.unwrap();
    }

    async fn upgrade(&self, planned: impl Fn(&WorkloadView) -> Vec<StepSpec> + Send + 'static) -> workload::Accepted {
        self.site.engines.kit.set_plan(planned);
        let parameters = json!({ "version": "v2" }).as_object().unwrap().clone();
        let request = OperationRequest { kind: OperationKind::Upgrade, parameters };
        let engine = &self.site.engines.engine;
        workload::start_operation(engine, &admin(), self.id, &Precondition::Any, request).await.unwrap()
    }
}

fn steps(of: &WorkloadView, ready: usize) -> Vec<StepSpec> {
    let of_member = |at: usize| {
        let (prepare, join) = (format!("prepare-{at}"), format!("join-{at}"));
        let joins = needs(task(&join, of, at), &[&prepare]);
        let prepares = StepSpec { on_first_start: Some(MemberEvent::Prepare), ..task(&prepare, of, at) };
        let (on_first_start, on_success) = (Some(MemberEvent::Join), Some(MemberEvent::BecameReady));
        [prepares, StepSpec { on_first_start, on_success, ..joins }]
    };
    (0..ready).flat_map(of_member).collect()
}

async fn created(
    site: &Site,
    name: &str,
    (role, workload): (Role, Option<WorkloadId>),
) -> Result<ServiceAccountRecord, CommandError> {
    let engine = &site.engines.engine;
    service_account::create(engine, &admin(), site.project, name.parse().unwrap(), (role, workload)).await
}

fn nothing() -> Report {
    Report { generation: 1, sequence: None, phase: None, progress: None, members: Vec::new() }
}

fn says(member: &str, health: Health) -> ReportedMember {
    let code = Some("gpu_lost".to_owned());
    ReportedMember { member: member.to_owned(), health, code, message: None, evidence: None }
}

fn of_first(health: Health) -> Report {
    Report { members: vec![says("unit-1", health)], ..nothing() }
}

/// Code and field of a refusal, which always says what to do.
fn refused(answer: Result<impl Sized, CommandError>) -> (Code, Option<String>) {
    let refused = answer.err().expect("it is refused");
    assert!(refused.next().is_some(), "{refused}");
    (refused.code(), refused.field())
}

fn reported(code: &str) -> Option<String> {
    Some(code.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_health_counts_until_the_workload_changes() {
    let of = Controlled::with_ready(2).await;
    let before = of.rows().await.0;
    assert!(of.reports(Health::Degraded).await.is_changed);
    let (workload, members, record) = of.rows().await;
    assert_eq!(of.health().await, (Health::Degraded, Health::Degraded, reported("controller_reported")));
    assert_eq!((members[1].health, &members[1].reported), (Health::Healthy, &None));
    assert_eq!((workload.lifecycle, workload.generation), (before.lifecycle, before.generation));
    let record = record.expect("it is kept");
    assert_eq!((record.account, record.by.as_str(), record.generation), (of.account.id, "service-account/watcher", 1));
    assert_eq!(of.site.engines.recorded(AuditAction::WorkloadReport).await, 1);
    assert_eq!(of.site.count_events(EventKind::WorkloadReported).await, 1);

    let operation = of.upgrade(|_| vec![milestone("upgraded")]).await.operation.id;
    let ended = of.site.end_of(operation).await;
    assert_eq!((ended.members[0].health, &ended.members[0].reported), (Health::Healthy, &None));
    assert_eq!((ended.workload.health, ended.workload.reported), (Health::Healthy, None));
    assert_eq!(refused(of.report(&of_first(Health::Degraded)).await), (Code::ReportStale, reported("generation")));
    let early = Report { generation: 3, ..nothing() };
    assert_eq!(refused(of.report(&early).await), (Code::FieldInvalid, reported("generation")));
    of.report(&Report { generation: 2, ..of_first(Health::Failed) }).await.expect("it is the present generation");
    assert_eq!(of.health().await, (Health::Failed, Health::Degraded, reported("controller_reported")));
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_reports_leave_no_further_record() {
    let of = Controlled::with_ready(2).await;
    of.reports(Health::Degraded).await;
    let before = of.rows().await;
    let events = of.site.count_events(EventKind::WorkloadReported).await;
    for _ in 0..5 {
        assert!(!of.reports(Health::Degraded).await.is_changed);
    }
    assert_eq!(of.rows().await, before, "nothing is written");
    assert_eq!(of.site.count_events(EventKind::WorkloadReported).await, events);
    // A higher sequence is written, because a late report with a lower one must be refused; it is no change for anybody else.
    for sequence in 1..4 {
        let again = Report { sequence: Some(sequence), ..of_first(Health::Degraded) };
        assert!(!of.report(&again).await.expect("accepted").is_changed);
    }
    assert_eq!(of.rows().await.2.and_then(|record| record.sequence), Some(3));
    assert_eq!(of.rows().await.0, before.0);
    assert_eq!(of.site.count_events(EventKind::WorkloadReported).await, events);
    assert_eq!(of.site.engines.recorded(AuditAction::WorkloadReport).await, 1);
    let late = Report { sequence: Some(2), ..of_first(Health::Healthy) };
    assert_eq!(refused(of.report(&late).await), (Code::ReportStale, reported("sequence")));
    // Another phase is a change without another health.
    let phase = Report { sequence: Some(4), phase: reported(SERVING), ..of_first(Health::Degraded) };
    assert!(of.report(&phase).await.expect("accepted").is_changed);
    assert_eq!(of.site.count_events(EventKind::WorkloadReported).await, events + 1);
    assert_eq!(of.site.engines.recorded(AuditAction::WorkloadReport).await, 1, "no health changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn worse_one_of_unit_and_controller_counts_until_both_are_well() {
    let of = Controlled::with_ready(2).await;
    of.reports(Health::Healthy).await;
    of.unit("failed").await;
    assert_eq!(of.health().await, (Health::Degraded, Health::Degraded, reported("cluster_not_ready")));
    of.reports(Health::Degraded).await;
    assert_eq!(of.health().await.2, reported("cluster_not_ready"), "the platform's own fault explains it first");
    of.unit("active").await;
    assert_eq!(of.health().await, (Health::Degraded, Health::Degraded, reported("controller_reported")));
    of.unit("failed").await;
    of.reports(Health::Failed).await;
    assert_eq!(of.health().await, (Health::Failed, Health::Degraded, reported("controller_reported")));
    of.reports(Health::Healthy).await;
    assert_eq!(of.health().await.2, reported("cluster_not_ready"));
    of.unit("active").await;
    assert_eq!(of.health().await, (Health::Healthy, Health::Healthy, None));
    // What a report leaves out is no longer reported.
    of.reports(Health::Failed).await;
    of.report(&nothing()).await.expect("accepted");
    assert_eq!(of.health().await, (Health::Healthy, Health::Healthy, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_node_and_reported_health_do_not_hide_each_other() {
    let of = Controlled::with_ready(2).await;
    let (engine, node) = (&of.site.engines.engine, of.site.nodes[0]);
    of.reports(Health::Degraded).await;
    engine.node_reachability_changed(node, false).await.unwrap();
    assert_eq!(of.health().await.2, reported("node_unreachable"));
    engine.node_reachability_changed(node, true).await.unwrap();
    assert_eq!(of.health().await, (Health::Degraded, Health::Degraded, reported("controller_reported")));
    of.reports(Health::Healthy).await;
    assert_eq!(of.health().await, (Health::Healthy, Health::Healthy, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_member_shows_what_its_unit_and_its_node_show() {
    let of = Controlled::with_ready(2).await;
    let drained = |of: &WorkloadView| {
        let drain = StepSpec { on_first_start: Some(MemberEvent::Drain), ..task("cordon", of, 0) };
        let drained = StepSpec { on_success: Some(MemberEvent::Drained), ..needs(task("drain", of, 0), &["cordon"]) };
        vec![drain, drained]
    };
    let operation = of.upgrade(drained).await.operation.id;
    assert_eq!(of.site.end_of(operation).await.members[0].state.name(), MemberStateName::Drained);
    of.unit("failed").await;
    assert_eq!(of.health().await, (Health::Degraded, Health::Degraded, reported("cluster_not_ready")));
    of.unit("active").await;
    assert_eq!(of.health().await, (Health::Healthy, Health::Healthy, None));
    let (engine, node) = (&of.site.engines.engine, of.site.nodes[0]);
    engine.node_reachability_changed(node, false).await.unwrap();
    assert_eq!(of.health().await, (Health::Degraded, Health::Degraded, reported("node_unreachable")));
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_sees_the_own_judgment_of_the_platform_beside_the_report() {
    let of = Controlled::with_ready(2).await;
    of.site.engines.engine.node_reachability_changed(of.site.nodes[0], false).await.unwrap();
    of.reports(Health::Failed).await;
    let planned = |of: &WorkloadView| {
        let member = &of.members[0];
        assert_eq!((member.health, member.own_health), (Health::Failed, Health::Degraded));
        let codes = [&member.fault, &member.own_fault].map(|fault| fault.as_ref().map(|fault| fault.code.as_str()));
        assert_eq!(codes, [Some("controller_reported"), Some("node_unreachable")]);
        vec![milestone("upgraded")]
    };
    let accepted = of.upgrade(planned).await;
    of.site.end_of(accepted.operation.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn phase_and_progress_of_an_open_operation_are_shown_first() {
    let of = Controlled::with_ready(2).await;
    let progress = Progress { completed: 2, total: 7 };
    let report =
        |generation| Report { generation, phase: Some(SERVING.to_owned()), progress: Some(progress), ..nothing() };
    of.report(&report(1)).await.expect("accepted");
    let shown = async || {
        let workload = of.rows().await.0;
        (workload.phase, workload.progress)
    };
    assert_eq!(shown().await, (SERVING.to_owned(), progress));

    let operation = of.upgrade(|_| vec![call("waits", "hangs")]).await.operation.id;
    of.site.until(operation, "waits", |step| step.state == gpuaas_model::StepState::Running).await;
    assert_eq!(shown().await.1, Progress { completed: 0, total: 1 }, "the report was about the generation before");
    let steps = of.site.engines.store().read().await.unwrap().steps_of(operation).await.unwrap();
    let accepted = of.report(&report(2)).await.expect("accepted");
    assert!(accepted.not_applied[0].starts_with("phase and progress: operation "), "{:?}", accepted.not_applied);
    assert_eq!(shown().await.1, Progress { completed: 0, total: 1 });
    let after = of.site.engines.store().read().await.unwrap().steps_of(operation).await.unwrap();
    assert_eq!((after.len(), &after[0].state), (steps.len(), &steps[0].state));
    of.site.cancel(operation).await;
    of.site.end_of(operation).await;
    assert_eq!(shown().await, (SERVING.to_owned(), progress), "it counts now, because it is about this generation");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_counts_only_for_ready_members() {
    let of = Controlled::with_ready(1).await;
    let report =
        Report { members: vec![says("unit-1", Health::Degraded), says("unit-2", Health::Failed)], ..nothing() };
    let accepted = of.report(&report).await.expect("accepted");
    assert_eq!(accepted.not_applied, ["unit-2: it is pending; its health counts once it is ready"]);
    let (_, members, _) = of.rows().await;
    assert_eq!((members[0].health, members[1].health), (Health::Degraded, Health::Progressing));
    assert_eq!(members[1].reported, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_account_takes_its_reports_with_it() {
    let of = Controlled::with_ready(2).await;
    let report = Report { phase: Some(SERVING.to_owned()), ..of_first(Health::Failed) };
    of.report(&report).await.expect("accepted");
    let engine = &of.site.engines.engine;
    let delete =
        async |caller: &Caller| service_account::delete(engine, caller, of.site.project, &of.account.name).await;
    delete(&admin().with_dry_run(true)).await.expect("it could be deleted");
    assert_eq!(of.health().await.0, Health::Failed, "a dry run forgets nothing");
    delete(&admin()).await.expect("deleted");
    let (workload, members, record) = of.rows().await;
    assert_eq!((record, workload.reported, &members[0].reported), (None, None, &None));
    assert_eq!(workload.phase, "working");
    // A request that was authenticated before the deletion and is carried out after it.
    assert_eq!(refused(of.report(&report).await).0, Code::Unauthenticated);
    assert_eq!(of.rows().await.2, None);
    assert_eq!(of.health().await, (Health::Healthy, Health::Healthy, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_controller_of_a_workload_reports_about_it() {
    let of = Controlled::with_ready(2).await;
    let engine = &of.site.engines.engine;
    let other = WorkloadRecord {
        id: WorkloadId::from_uuid(Uuid::from_u128(70)),
        name: "infer".parse().unwrap(),
        ..of.rows().await.0
    };
    let mut tx = of.site.engines.store().begin().await.unwrap();
    tx.insert_workload(&other).await.unwrap();
    tx.commit().await.unwrap();
    let missing = WorkloadId::from_uuid(Uuid::from_u128(71));
    let about = async |caller: &Caller, id| report::report(engine, caller, id, &of_first(Health::Failed)).await;
    for id in [other.id, missing] {
        let refused = about(&of.caller(), id).await.expect_err("it looks absent");
        assert_eq!((refused.code(), refused.to_string()), (Code::NotFound, format!("there is no workload {id}")));
    }
    for role in Role::ALL.iter().filter(|role| !role.is_of_workload()) {
        let project = (!role.is_of_platform()).then_some(of.site.project);
        let caller = Caller { principal: Principal { role: *role, project, ..admin().principal }, ..admin() };
        assert_eq!(refused(about(&caller, of.id).await).0, Code::Forbidden, "{role}");
    }
    let unbound = of.caller();
    let unbound = Caller { principal: Principal { workload: None, ..unbound.principal }, ..unbound };
    assert_eq!(refused(about(&unbound, of.id).await).0, Code::NotFound);
    assert_eq!(of.health().await, (Health::Healthy, Health::Healthy, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn report_about_what_does_not_exist_is_refused_and_changes_nothing() {
    let of = Controlled::with_ready(2).await;
    let before = of.rows().await;
    let report = async |report: Report| refused(of.report(&report).await);
    let field = |name: &str| (Code::FieldInvalid, Some(name.to_owned()));
    let unknown = Report { members: vec![says("unit-9", Health::Healthy)], ..nothing() };
    assert_eq!(report(unknown).await, field("members[0].member"));
    assert_eq!(report(Report { phase: Some("dreaming".to_owned()), ..nothing() }).await, field("phase"));
    let progress = Some(Progress { completed: 3, total: 2 });
    assert_eq!(report(Report { progress, ..nothing() }).await, field("progress.completed"));
    assert_eq!(of.rows().await, before);
    of.site.decommission_and_wait(of.id, |_| vec![milestone("removed")]).await;
    let ended = Report { generation: 2, ..nothing() };
    assert_eq!(report(ended).await, (Code::StateConflict, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_is_bound_to_one_workload_that_has_no_other() {
    let of = Controlled::with_ready(2).await;
    let (controller, engine) = (Role::AppController, &of.site.engines.engine);
    let create = async |name: &str, role, workload| refused(created(&of.site, name, (role, workload)).await);
    let about_workload = |code| (code, Some("workload".to_owned()));
    assert_eq!(create("a", controller, None).await, about_workload(Code::FieldInvalid));
    assert_eq!(create("b", Role::Viewer, Some(of.id)).await, about_workload(Code::FieldInvalid));
    assert_eq!(create("c", controller, Some(of.id)).await, about_workload(Code::StateConflict));
    let missing = WorkloadId::from_uuid(Uuid::from_u128(71));
    assert_eq!(create("d", controller, Some(missing)).await.0, Code::NotFound);
    let new = token::NewToken {
        name: "watcher".to_owned(),
        role: controller,
        project: Some(of.site.project),
        ttl_seconds: None,
    };
    assert_eq!(refused(token::create(engine, &admin(), new).await), (Code::FieldInvalid, Some("role".to_owned())));
    let made = service_account::create_token(engine, &admin(), of.site.project, &of.account.name, None).await;
    let (token, _) = made.unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!((token.role, token.workload, token.service_account), (controller, Some(of.id), Some(of.account.id)));
    service_account::delete(engine, &admin(), of.site.project, &of.account.name).await.expect("deleted");
    let again = created(&of.site, "e", (controller, Some(of.id))).await;
    again.expect("its place is free again");
    of.site.decommission_and_wait(of.id, |_| vec![milestone("removed")]).await;
    service_account::delete(engine, &admin(), of.site.project, &"e".parse().unwrap()).await.expect("deleted");
    assert_eq!(create("f", controller, Some(of.id)).await, about_workload(Code::StateConflict));
}
