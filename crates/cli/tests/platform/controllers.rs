//! Controllers: a service account of one workload reports about it, and nothing else of the project exists for it.

use std::{process::Command, time::Duration};

use gpuaas_api_types::{CreateServiceAccount, CreateServiceAccountToken, ReportWorkload};
use gpuaas_client::AuditQuery;
use gpuaas_model::{Code, Permission, Role};
use http::Method;
use serde_json::{Value, json};

use crate::{
    operations::{UNUSED_ID, operations},
    raw::{HttpResponse, send},
    world::{GPUAAS, PROJECT, Platform},
};

/// A controller of the workload `train`, and a workload beside it.
struct Controlled {
    platform: Platform,
    secret: String,
    own: String,
    own_operation: String,
    other: String,
    other_operation: String,
}

impl Controlled {
    async fn start() -> Self {
        let platform = Platform::with_release(2, &[]).await;
        let client = platform.client();
        let train = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
        assert_eq!(platform.await_end(&train).await.operation.state, "succeeded");
        let mut request = platform.deployment("infer", &[]).await;
        request.placement = json!({ "server_allocation_id": platform.allocation(2).await, "agent_allocation_ids": [] });
        let infer = client.deploy_workload(&request).await.expect("accepted");
        let account = CreateServiceAccount {
            name: "watcher".into(),
            role: Role::AppController.to_string(),
            workload: Some("train".into()),
            project: Some(PROJECT.into()),
        };
        let made = client.create_service_account(&account).await.expect("made");
        assert_eq!(made.workload_name.as_deref(), Some("train"));
        let token = CreateServiceAccountToken { ttl_seconds: Some(600) };
        let token = client.create_service_account_token(Some(PROJECT.into()), "watcher", &token).await.expect("made");
        Self {
            secret: token.secret,
            own: train.workload.id,
            own_operation: train.operation.id,
            other: infer.workload.id,
            other_operation: infer.operation.id,
            platform,
        }
    }

    /// Sends a request as the controller. Beyond its rate it waits as long as the answer says.
    async fn ask(&self, method: Method, path: &str, body: &str) -> HttpResponse {
        let bearer = format!("Bearer {}", self.secret);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        loop {
            let answer = send(&self.platform, method.clone(), path, &headers, body.to_owned()).await;
            if answer.status != 429 {
                return answer;
            }
            let seconds = answer.headers["retry-after"].to_str().expect("a text").parse().expect("seconds");
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }

    async fn report(&self, report: Value) -> HttpResponse {
        self.ask(Method::PUT, "/api/v1/workloads/train/report", &report.to_string()).await
    }

    /// Runs a command as the controller, with `-o json`.
    fn gpuaas(&self, arguments: &[&str]) -> Value {
        let ready = self.platform.ready();
        let output = Command::new(GPUAAS)
            .args([arguments, &["-o", "json"]].concat())
            .env("GPUAAS_SERVER", ready["url"].as_str().expect("a URL"))
            .env("GPUAAS_CA_FILE", ready["ca_file"].as_str().expect("a path"))
            .env("GPUAAS_TOKEN", &self.secret)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_reports_and_sees_nothing_else() {
    let of = Controlled::start().await;
    assert_only_these_routes(&of).await;
    assert_others_look_absent(&of).await;
    assert_report_counts(&of).await;
}

/// Calls every route: with a permission that the role lacks it is forbidden, whether its objects exist or not.
async fn assert_only_these_routes(of: &Controlled) {
    let mut forbidden = 0;
    for operation in operations() {
        let Some(needed) = operation.needs else { continue };
        let body = if operation.method == Method::GET { "" } else { "{}" };
        for id in [UNUSED_ID, &of.own, &of.other] {
            let answer = of.ask(operation.method.clone(), &operation.path(|_| id.to_owned()), body).await;
            let is_allowed = matches!(needed, Permission::WorkloadsRead | Permission::WorkloadsReport);
            assert_eq!(is_allowed, answer.status != 403, "{} of {id}: {answer:?}", operation.name);
            forbidden += usize::from(!is_allowed);
        }
    }
    assert!(forbidden > 100, "{forbidden}");
}

async fn assert_others_look_absent(of: &Controlled) {
    let get = async |path: String| of.ask(Method::GET, &path, "").await;
    for key in [of.other.as_str(), "infer", UNUSED_ID, "absent", &of.other[..8]] {
        for path in ["", "/members"] {
            let answer = get(format!("/api/v1/workloads/{key}{path}")).await;
            // Ids made within the same minute begin equally, and then the beginning is that of its own workload.
            let is_own = of.own.starts_with(key);
            assert_eq!(answer.status, if is_own { 200 } else { 404 }, "{key}{path}: {answer:?}");
            assert!(!answer.body.to_string().contains(&of.other) || key == of.other, "{answer:?}");
        }
        let report = of.ask(Method::PUT, &format!("/api/v1/workloads/{key}/report"), r#"{"generation":1}"#).await;
        assert!(report.status == 404 || of.own.starts_with(key), "{key}: {report:?}");
    }
    let absent = get(format!("/api/v1/operations/{}", of.other_operation)).await;
    assert_eq!((absent.status, absent.code()), (404, "not_found"), "{absent:?}");
    let begun = get(format!("/api/v1/operations/{}", &of.own_operation[..8])).await;
    assert_eq!((begun.status, begun.code()), (404, "not_found"), "no list of ids: {begun:?}");
    assert_eq!(get(format!("/api/v1/operations/{}", of.own_operation)).await.status, 200);
    let listed = get("/api/v1/operations".to_owned()).await;
    assert_eq!(listed.body["items"].as_array().expect("a list").len(), 1, "{listed:?}");
    let mut cursor = "0".to_owned();
    let mut events = 0;
    loop {
        let page = get(format!("/api/v1/events?after={cursor}")).await;
        let text = page.body.to_string();
        assert!(!text.contains(&of.other) && !text.contains(&of.other_operation), "{text}");
        events += page.body["items"].as_array().expect("a list").len();
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert!(events > 10, "its own events are there: {events}");
}

async fn assert_report_counts(of: &Controlled) {
    let client = of.platform.client();
    let detail = async || client.get_workload(Some(PROJECT.into()), "train").await.expect("shown");
    let member = detail().await.members[0].name.clone();
    let degraded = json!({ "member": member, "health": "degraded", "code": "gpu_lost", "message": "a GPU is gone" });
    let report = json!({ "generation": 1, "progress": { "completed": 1, "total": 3 }, "members": [degraded] });
    let accepted = of.report(report.clone()).await;
    assert_eq!((accepted.status, &accepted.body["changed"]), (200, &json!(true)), "{accepted:?}");
    let again = of.report(report).await;
    assert_eq!((again.status, &again.body["changed"]), (200, &json!(false)), "{again:?}");
    let shown = detail().await;
    assert_eq!((shown.workload.health.as_str(), shown.workload.completed), ("degraded", 1));
    let fault = shown.members[0].fault.as_ref().expect("it is explained");
    assert_eq!(fault.code, "controller_reported");
    assert_eq!(shown.controller.expect("it reports").by, "service-account/watcher");
    let records = client.list_audit(&AuditQuery::default()).await.expect("records").items;
    let reports = records.iter().filter(|record| record.action == "workload.report" && record.result == "accepted");
    assert_eq!(reports.count(), 1, "an equal report leaves no record");

    let stale = of.report(json!({ "generation": 0 })).await;
    assert_eq!((stale.status, stale.code()), (409, "report_stale"), "{stale:?}");
    let early = of.report(json!({ "generation": 2 })).await;
    assert_eq!((early.status, early.code(), &early.body["field"]), (422, "field_invalid", &json!("generation")));
    let unknown = json!({ "generation": 1, "members": [{ "member": "agent-9", "health": "healthy" }] });
    let unknown = of.report(unknown).await;
    assert_eq!((unknown.status, &unknown.body["field"]), (422, &json!("members[0].member")), "{unknown:?}");

    let said = format!("{member}=healthy");
    let answer = of.gpuaas(&["workload", "report", "train", "--generation", "1", "--member", &said]);
    assert_eq!((&answer["changed"], &answer["report"]["current"]), (&json!(true), &json!(true)), "{answer}");
    assert_eq!(detail().await.workload.health, "healthy");
    assert_eq!(of.gpuaas(&["whoami"])["workload"], json!(of.own));

    let controller = of.platform.client_with(&of.secret);
    let nothing: ReportWorkload = serde_json::from_value(json!({ "generation": 1 })).expect("a report");
    assert!(controller.report_workload(None, "train", &nothing).await.expect("accepted").changed);
    client.delete_service_account(Some(PROJECT.into()), "watcher").await.expect("deleted");
    let ended = controller.report_workload(None, "train", &nothing).await.expect_err("its account is deleted");
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    assert!(detail().await.controller.is_none());
}
