//! The life of a cluster from placement to removal through the API, one operation after the other, as a tenant runs them.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};
use gpuaas_api_types::{AddMembers, CreateToken, Deploy, EnrollNode, RequestAccess, StartOperation, WorkloadLogLine};
use gpuaas_client::{AuditQuery, Client, ClientError, LogOptions, WorkloadLogOptions};
use serde_json::json;

use crate::world::{PROJECT, Platform, WAIT_MAX, eventually};

fn project() -> Option<String> {
    Some(PROJECT.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_placed_deployed_grown_read_and_removed() {
    let platform = Platform::with_release(3, &[]).await;
    let admin = platform.client();
    let ask = CreateToken {
        name: "tenant".into(),
        role: "project-member".into(),
        project: project(),
        ttl_seconds: Some(3_600),
    };
    let tenant = platform.client_with(&admin.create_token(&ask).await.expect("made").secret);

    let apps = tenant.list_apps().await.expect("a catalog").items;
    assert_eq!((apps[0].slug.as_str(), apps[0].status.as_str()), ("rke2", "published"));
    let app = tenant.get_app("rke2").await.expect("an app");
    assert_eq!(app.stand_ins, app.versions);
    assert!(!app.promises.is_empty() && !app.not_promised.is_empty());
    let upgrade = app.operations.iter().find(|operation| operation.kind == "upgrade").expect("it is described");
    assert!(!upgrade.available && upgrade.parameters_schema["properties"]["version"].is_object());
    assert!(!admin.list_artifacts().await.expect("files").items.is_empty());
    let options = tenant.placement_options(project(), "rke2").await.expect("options").items;
    assert!(options.len() == 3 && options.iter().all(|option| option.usable && option.reasons.is_empty()));

    let config = json!({ "tls_san": ["k8s.example"] });
    let deploy = Deploy { config, ..platform.deployment("train", &[2]).await };
    let preview = tenant.preview_workload(&deploy).await.expect("a preview");
    assert_eq!(preview.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["server-1", "agent-1"]);
    assert!(
        preview.digest.starts_with("plan-") && preview.steps.iter().all(|step| !step.does.is_empty()),
        "{preview:?}"
    );
    let again = tenant.preview_workload(&deploy).await.expect("a preview");
    assert_eq!(again.digest, preview.digest, "the same request has the same plan");
    assert!(tenant.list_workloads(project(), None, None).await.expect("a list").items.is_empty(), "a workload exists");

    let mut events = Box::pin(tenant.follow_new_events(project()).await.expect("a stream"));
    let started = tenant.deploy_workload(&deploy).await.expect("accepted");
    let second = tenant.decommission_workload(project(), "train").await.expect_err("one at a time").to_string();
    assert!(second.contains("deploy"), "the conflict does not name the running operation: {second}");
    let ended = platform.await_end(&started).await;
    assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
    let reported: Vec<String> = events
        .by_ref()
        .take_while(|event| {
            let goes_on = event.as_ref().is_ok_and(|event| event.kind != "operation.ended");
            async move { goes_on }
        })
        .map_ok(|event| event.kind)
        .try_collect()
        .await
        .expect("events");
    assert_eq!(reported.first().map(String::as_str), Some("workload.requested"));
    let listed = tenant.list_events(project(), 0).await.expect("events").items;
    let numbers: Vec<u64> = listed.iter().map(|event| event.sequence).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no gap: {numbers:?}");

    let refused = platform.gpuaas(&["workload", "show", "train"]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("train is the name of a workload in project research"), "{printed}");
    assert!(printed.contains("--project research"), "{printed}");
    assert_eq!(platform.gpuaas(&["workload", "show", "nothing"]).status.code(), Some(3));
    let detail = tenant.get_workload(project(), "train").await.expect("a workload");
    assert_eq!(detail.workload.project_name, PROJECT);
    assert_eq!(detail.config["tls_san"], json!(["k8s.example"]));
    let shown = platform.gpuaas(&["workload", "show", "train", "--project", PROJECT]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("\nSETTINGS\n  tls_san: k8s.example\n"), "{shown:?}");
    assert_eq!((detail.workload.lifecycle.as_str(), detail.workload.health.as_str()), ("running", "healthy"));
    assert_eq!((detail.workload.section.as_str(), detail.workload.members_ready), ("active", 2));
    assert!(detail.workload.stand_in);
    let endpoints: Vec<_> =
        detail.workload.endpoints.iter().map(|of| (of.purpose.as_str(), Some(&of.address))).collect();
    assert_eq!(endpoints, [("api", detail.workload.endpoint.as_ref())]);
    let counts = tenant.list_workloads(project(), Some("active".into()), None).await.expect("a list").counts;
    assert_eq!(counts.expect("counts")["active"], 1);
    let operations = tenant.list_operations(project(), Some("train".into()), None).await.expect("operations").items;
    assert_eq!(operations.len(), 1);

    let ask = WorkloadLogOptions { tail: Some(1), follow: true, ..WorkloadLogOptions::default() };
    let mut followed = Box::pin(tenant.read_workload_logs(project(), "train", &ask).await.expect("logs"));
    let diff = tenant.diff_workload(project(), "train").await.expect("a comparison");
    assert!(diff.differences.is_empty() && diff.unknown.is_empty(), "it deviates: {diff:?}");
    assert_eq!(platform.gpuaas(&["workload", "diff", "train", "--project", PROJECT]).status.code(), Some(0));
    let shown = tenant.preview_decommission(project(), "train").await.expect("a preview");
    assert_eq!((shown.members.len(), shown.interrupts.is_empty()), (2, false), "{shown:?}");

    let additions = platform.additions(&[3]).await;
    let preview = tenant.preview_members(project(), "train", &additions).await.expect("a preview");
    assert_eq!(preview.members[0].name, "agent-2");
    let added = platform.await_end(&tenant.add_members(project(), "train", &additions).await.expect("accepted")).await;
    assert_eq!(added.operation.state, "succeeded", "{:?}", added.operation.fault);
    assert_eq!(tenant.list_members(project(), "train").await.expect("members").items.len(), 3);

    let joined = tokio::time::timeout(WAIT_MAX, async {
        while let Some(line) = followed.next().await {
            let line = line.expect("a line");
            if (line.source.as_str(), line.member.as_deref()) == ("journal", Some("agent-2")) {
                return;
            }
        }
        panic!("the followed logs end");
    });
    joined.await.expect("the journal of the added member is not followed");
    drop(followed);
    let remove = ["workload", "decommission", "train", "--project", PROJECT, "--yes", "--plan-digest"];
    let refused = platform.gpuaas(&[&remove[..], &[shown.digest.as_str()]].concat());
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(5) && printed.contains("agent-2"), "the difference: {printed}");
    let refused = platform.gpuaas(&[&remove[..], &["plan-1"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));

    let of_other_app = AddMembers { app: "other".to_owned(), ..additions };
    let Err(ClientError::Problem(problem)) = tenant.add_members(project(), "train", &of_other_app).await else {
        panic!("the workload is of another app")
    };
    assert_eq!((problem.code.as_str(), problem.field.as_deref()), ("field_invalid", Some("app")), "{problem:?}");

    for parameters in [json!({}), json!({ "version": "v9", "force": true }), json!({ "version": "v9" })] {
        let parameters = parameters.as_object().expect("an object").clone();
        let ask = StartOperation { app: "rke2".to_owned(), kind: "upgrade".to_owned(), parameters };
        for refused in [
            tenant.preview_operation(project(), "train", &ask).await.map(drop),
            tenant.start_operation(project(), "train", &ask, None).await.map(drop),
        ] {
            let Err(ClientError::Problem(problem)) = refused else { panic!("{refused:?}") };
            // Not the parameters: no parameters would help.
            assert_eq!((problem.code.as_str(), problem.errors.len()), ("state_conflict", 0), "{problem:?}");
        }
    }
    let args = ["operation", "start", "train", "upgrade", "--project", PROJECT, "--parameter", "version=v9"];
    let refused = platform.gpuaas(&args);
    let shown = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(5) && shown.contains("upgrade is not available yet for rke2"), "{shown}");

    let ask = LogOptions { tail: Some(5), ..LogOptions::default() };
    let lines: Vec<_> =
        tenant.read_logs(project(), "train", "server-1", &ask).await.expect("a journal").collect().await;
    assert_eq!(lines.len(), 5, "{lines:?}");
    let ask = LogOptions { tail: Some(2), since_seconds: Some(3_600), ..LogOptions::default() };
    let of_an_hour: Vec<_> =
        tenant.read_logs(project(), "train", "server-1", &ask).await.expect("a journal").collect().await;
    assert_eq!(of_an_hour.len(), 2, "the last lines of that hour: {of_an_hour:?}");
    assert_logs_are_merged(&platform, &tenant).await;
    assert_eq!(tenant.resume_workload(project(), "train").await.expect_err("nothing to resume").exit() as u8, 5);
    assert_eq!(tenant.cancel_operation(&started.operation.id).await.expect_err("it has ended").exit() as u8, 5);

    let granted = tenant.deliver_kubeconfig(project(), "train", &RequestAccess::default()).await.expect("a kubeconfig");
    assert!(granted.kubeconfig.contains("token:") && !granted.kubeconfig.contains("client-key-data"));
    let access = tenant.get_access(project(), "train").await.expect("an answer");
    let delivered = access.grants.iter().find(|grant| grant.id == granted.grant).expect("the grant is on record");
    assert_eq!(delivered.requested_by, "tenant");
    let named = |command: &str| {
        let arguments = ["workload", command, "train", "-o", "name", "--project", PROJECT];
        String::from_utf8(platform.gpuaas(&arguments).stdout).expect("text")
    };
    assert_eq!(named("access").trim(), granted.grant, "what revoke-access takes");
    assert!(named("kubeconfig").contains("\nclusters:"), "the kubeconfig itself");
    let revoked = tenant.revoke_access(&granted.grant).await.expect("revoked");
    assert!(revoked.revoked_at.is_some());

    let tasks = admin.list_tasks(None, Some(started.operation.id.clone())).await.expect("tasks").items;
    assert!(!tasks.is_empty() && tasks.iter().all(|task| task.state == "succeeded"));
    assert_eq!(admin.get_task(&tasks[0].id).await.expect("a task").id, tasks[0].id);

    let removed = platform.await_end(&tenant.decommission_workload(project(), "train").await.expect("accepted")).await;
    assert_eq!(removed.operation.state, "succeeded", "{:?}", removed.operation.fault);
    let gone = tenant.get_workload(project(), "train").await.expect("history").workload;
    assert_eq!((gone.lifecycle.as_str(), gone.section.as_str(), gone.endpoint), ("decommissioned", "history", None));
    let lines = merged(&tenant, &WorkloadLogOptions::default()).await;
    // Each journal is refused by itself, in no order.
    let unread: BTreeSet<_> = lines
        .iter()
        .filter(|line| line.source == "problem")
        .map(|line| (line.member.as_deref().unwrap_or_default(), line.code.as_deref()))
        .collect();
    let expected = ["agent-1", "agent-2", "server-1"].map(|member| (member, Some("node_not_allocated")));
    let expected = BTreeSet::from(expected);
    assert_eq!(unread, expected, "{lines:?}");
    assert!(lines.iter().any(|line| line.source == "event"), "the events remain: {lines:?}");
    for node in 1..=3 {
        assert!(!platform.node_file(node, "var/lib/rancher/rke2").exists(), "demo-{node} keeps RKE2's data");
    }
    let released = admin.release_allocation(&platform.allocation(3).await).await.expect("released");
    assert_eq!(released.state, "released");
    eventually("the node does not need a reimage", async || {
        admin.get_node("demo-3").await.is_ok_and(|node| node.state == "needs_reimage")
    })
    .await;
    assert_eq!(admin.reset_node("demo-3", &EnrollNode::default()).await.expect("reset").node.state, "registered");

    // A refusal belongs to the workload, too.
    assert_eq!(admin.decommission_workload(project(), "train").await.expect_err("it is gone").exit() as u8, 5);
    let query = AuditQuery { workload: Some("train".into()), project: project(), ..AuditQuery::default() };
    let audit = admin.list_audit(&query).await.expect("records").items;
    let actions: Vec<&str> = audit.iter().map(|record| record.action.as_str()).collect();
    let dispatched = audit.iter().filter(|record| record.action == "task.dispatch" && record.target == "node/demo-1");
    assert!(dispatched.count() > 3, "the workload's tasks are missing in {actions:?}");
    assert!(audit.iter().any(|record| record.result == "refused"), "{audit:?}");
    let seen = tenant.list_audit(&AuditQuery { project: None, ..query }).await.expect("records").items;
    assert!(seen.iter().any(|record| record.action == "task.complete"), "{seen:?}");
    for action in [
        "workload.deploy",
        "workload.add_member",
        "logs.read",
        "access.deliver",
        "access.revoke",
        "workload.decommission",
        "task.complete",
    ] {
        assert!(actions.contains(&action), "{action} is missing in {actions:?}");
    }
}

/// Reads logs that are not followed.
async fn merged(client: &Client, ask: &WorkloadLogOptions) -> Vec<WorkloadLogLine> {
    let lines = client.read_workload_logs(project(), "train", ask).await.expect("logs");
    lines.try_collect().await.expect("lines")
}

/// Checks the merged logs of a workload with the members server-1, agent-1 and agent-2.
async fn assert_logs_are_merged(platform: &Platform, tenant: &Client) {
    let all = WorkloadLogOptions { since: Some("2020-01-01T00:00:00Z".into()), ..WorkloadLogOptions::default() };
    let lines = merged(tenant, &all).await;
    for member in ["server-1", "agent-1", "agent-2"] {
        let is_read = |line: &WorkloadLogLine| line.source == "journal" && line.member.as_deref() == Some(member);
        assert!(lines.iter().any(is_read), "no line of {member}");
    }
    for source in ["task", "event"] {
        assert!(lines.iter().any(|line| line.source == source), "no line of the source {source}");
    }
    assert!(lines.iter().all(|line| line.source != "problem"), "{lines:?}");
    // The sandboxes have one clock.
    assert!(lines.is_sorted_by(|one, next| one.at <= next.at), "the lines are not in the order of their times");

    let last = merged(tenant, &WorkloadLogOptions { tail: Some(5), ..WorkloadLogOptions::default() }).await;
    assert_eq!(last.len(), 5, "{last:?}");
    let (members, sources) = (vec!["agent-1".to_owned()], vec!["journal".to_owned()]);
    let of_one = merged(tenant, &WorkloadLogOptions { members, sources, ..all.clone() }).await;
    assert!(!of_one.is_empty() && of_one.iter().all(|line| line.member.as_deref() == Some("agent-1")), "{of_one:?}");
    let resumed = of_one.iter().rev().nth(2).and_then(|line| line.position.clone()).expect("a position");
    let (members, sources) = (vec!["agent-1".to_owned()], vec!["journal".to_owned()]);
    let resume = vec![("agent-1".to_owned(), resumed)];
    let rest = merged(tenant, &WorkloadLogOptions { members, sources, resume, ..all.clone() }).await;
    assert_eq!(rest[..2], of_one[of_one.len() - 2..], "continued after the third last line");

    let defaults = WorkloadLogOptions::default;
    for (wrong, code, field) in [
        (WorkloadLogOptions { members: vec!["agent-9".into()], ..defaults() }, "not_found", "member"),
        (WorkloadLogOptions { sources: vec!["kernel".into()], ..defaults() }, "query_invalid", "source"),
        (WorkloadLogOptions { since: Some("yesterday".into()), ..defaults() }, "query_invalid", "since"),
        (WorkloadLogOptions { tail: Some(10_001), ..defaults() }, "query_invalid", "tail"),
        (WorkloadLogOptions { unit: Some("sshd.service".into()), ..defaults() }, "field_invalid", "unit"),
        (
            WorkloadLogOptions { resume: vec![("agent-1".into(), "soon".into())], ..defaults() },
            "query_invalid",
            "resume",
        ),
    ] {
        let refused = tenant.read_workload_logs(project(), "train", &wrong).await.map(drop);
        let Err(ClientError::Problem(problem)) = refused else { panic!("{wrong:?}: {refused:?}") };
        assert_eq!((problem.code.as_str(), problem.field.as_deref()), (code, Some(field)), "{problem:?}");
    }

    let args = ["workload", "logs", "train", "--project", PROJECT, "--source", "event", "--tail", "3", "-o", "json"];
    let printed = String::from_utf8(platform.gpuaas(&args).stdout).expect("text");
    let events: Vec<WorkloadLogLine> =
        printed.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect();
    assert!(events.len() == 3 && events.iter().all(|line| line.source == "event"), "{printed}");
    let wrong = platform.gpuaas(&["workload", "logs", "train", "--project", PROJECT, "--since", "soon"]);
    let shown = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && shown.contains("--since"), "{shown}");
}
