//! Requests on a running workload that must not be carried out: each is refused with its code and what to do next, and changes nothing.

use std::process::Output;

use gpuaas_api_types::{CreateProject, Deploy};
use gpuaas_client::ClientError;
use serde_json::Value;

use crate::{
    kubectl::Kubectl,
    small_disk::SmallDisk,
    world::{PROJECT, Platform, eventually},
};

/// A running cluster `train` with its server on `demo-1` and agents on `demo-2` and `demo-3`.
struct Train {
    platform: Platform,
}

impl Train {
    async fn start(nodes: u8) -> Self {
        let platform = Platform::with_release(nodes, &[]).await;
        let deployment = platform.deployment("train", &[2, 3]).await;
        let started = platform.client().deploy_workload(&deployment).await.expect("accepted");
        let ended = platform.await_end(&started).await;
        assert_eq!(ended.operation.state, "succeeded", "{:?}", ended.operation.fault);
        Self { platform }
    }

    /// Runs `gpuaas workload LINE`.
    fn run(&self, line: &str) -> Output {
        let arguments = ["workload"].into_iter().chain(line.split(' ')).chain(["--project", PROJECT, "-o", "json"]);
        self.platform.gpuaas(&arguments.collect::<Vec<_>>())
    }

    /// Runs `gpuaas workload LINE`, which must succeed, and returns what it prints.
    fn done(&self, line: &str) -> Value {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs `gpuaas workload LINE`, which must be refused, and returns the report.
    fn refused(&self, line: &str) -> Value {
        let output = self.run(line);
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{line} was accepted");
        let report: Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{line}: {report}"));
        assert_eq!(report["exit_status"], output.status.code().unwrap_or_default(), "{line}");
        report
    }

    /// Returns the workload's generation, its members with their states, and the number of its operations.
    async fn state(&self) -> (u64, Vec<(String, String)>, usize) {
        let client = self.platform.client();
        let project = || Some(PROJECT.to_owned());
        let detail = client.get_workload(project(), "train").await.expect("a workload");
        let operations = client.list_operations(project(), Some("train".to_owned()), None).await.expect("a list").items;
        let members = detail.members.into_iter().map(|member| (member.name, member.state)).collect();
        (detail.workload.generation, members, operations.len())
    }

    /// Every line is refused with its code, exit status and next action, and nothing changes, also as a plan.
    async fn assert_refused(&self, cases: &[(&str, &str, u8, &str)]) {
        let before = self.state().await;
        for (line, code, status, next) in cases {
            for line in [format!("{line} --yes"), format!("{line} --plan")] {
                let report = self.refused(&line);
                assert_eq!(
                    (&report["code"], &report["exit_status"]),
                    (&Value::from(*code), &Value::from(*status)),
                    "{report}"
                );
                let advice = [&report["next"], &report["errors"]].map(ToString::to_string).concat();
                assert!(advice.contains(next), "{line}: {report}");
            }
        }
        assert_eq!(self.state().await, before);
    }

    /// Returns the member's state as `gpuaas workload members` shows it.
    fn member(&self, name: &str) -> String {
        let members = self.done("members train");
        let mut members = members.as_array().expect("a list").iter();
        let member = members.find(|member| member["name"] == name).expect("a member");
        member["state"].as_str().expect("a state").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_changes_of_members_are_refused_with_what_to_do_instead() {
    let train = Train::start(3).await;
    train
        .assert_refused(&[
            ("remove-member train server-1", "last_server", 5, "gpuaas workload decommission train"),
            ("drain-member train server-1", "last_server", 5, "gpuaas workload decommission train"),
            ("replace-member train server-1 --by demo-2", "last_server", 5, "gpuaas workload decommission train"),
            ("remove-member train agent-9", "member_unknown", 3, "agent-1, agent-2"),
            ("drain-member train agent-9", "member_unknown", 3, "agent-1, agent-2"),
            ("replace-member train agent-1 --by demo-2", "allocation_in_use", 5, "gpuaas allocation list"),
            ("replace-member train agent-1 --by demo-1", "placement_invalid", 4, "allocation_in_use"),
            ("replace-member train agent-1 --by nowhere", "not_found", 3, "gpuaas allocation list"),
            ("repair train --scope whole-runtime", "nothing_to_do", 5, "gpuaas workload diff train"),
            ("repair train --scope member --member agent-1", "nothing_to_do", 5, "gpuaas workload diff train"),
            ("repair train --scope control-plane --member agent-1", "field_invalid", 2, "scope member"),
            ("drain-member train agent-1 --drain-timeout 48h", "field_invalid", 2, "timeout_seconds"),
        ])
        .await;
    let before = train.state().await;
    for (line, code) in [
        ("add-member train --agent demo-2", "placement_invalid"),
        ("uncordon-member train agent-9", "member_unknown"),
        ("start train", "nothing_to_do"),
        ("restart train", "restart_unsupported"),
    ] {
        assert_eq!(train.refused(line)["code"], code, "{line}");
    }
    let restart = train.refused("restart train");
    let next = restart["next"].as_str().expect("a next action");
    assert!(
        next.contains("gpuaas workload reconcile train") && next.contains("gpuaas workload repair train"),
        "{next}"
    );
    assert_eq!(restart["exit_status"], 5);
    assert_eq!(train.state().await, before);

    train.done("drain-member train agent-1 --yes --wait");
    assert_eq!(train.member("agent-1"), "drained");
    train
        .assert_refused(&[
            ("drain-member train agent-1", "nothing_to_do", 5, "gpuaas workload uncordon-member train agent-1"),
            ("drain-member train agent-2", "last_agent", 5, "--force"),
            ("remove-member train agent-2", "last_agent", 5, "--force"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_not_added_on_nodes_of_others_or_out_of_reach() {
    let train = Train::start(4).await;
    let client = train.platform.client();
    client.create_project(&CreateProject { name: "other".into() }).await.expect("made");
    train.platform.signal_agent(4, "STOP");
    eventually("demo-4 does not become unreachable", async || {
        client.get_node("demo-4").await.is_ok_and(|node| node.connectivity == "unreachable")
    })
    .await;
    let before = train.state().await;
    for (line, code, reason) in [
        ("add-member train --agent demo-1", "placement_invalid", "allocation_in_use"),
        ("add-member train --agent demo-4", "placement_invalid", "allocation_unreachable"),
        ("replace-member train agent-1 --by demo-4 --yes", "placement_invalid", "allocation_unreachable"),
        ("add-member train --agent 019c0000-0000-7000-8000-000000000000", "not_found", "gpuaas allocation list"),
    ] {
        let report = train.refused(line);
        assert!(report["code"] == code && report.to_string().contains(reason), "{line}: {report}");
    }
    // Its own workload uses the node: to end that one would be no way to enlarge it.
    let report = train.refused("add-member train --agent demo-1");
    let own = (&report["errors"][0]["detail"], &report["errors"][0]["next"]);
    assert_eq!(own.0, "demo-1 is already the node of server-1 in this workload", "{report}");
    assert_eq!(own.1, "choose another node", "{report}");
    // The field that a person typed, not that of the placement.
    let report = train.refused("replace-member train agent-1 --by demo-4 --yes");
    assert_eq!(report["errors"][0]["field"], "parameters.by", "{report}");
    // An allocation of another project, by its id.
    let placement = serde_json::json!({ "server_allocation_id": train.platform.allocation(4).await });
    let of_other =
        Deploy { project: Some("other".to_owned()), placement, ..train.platform.deployment("mine", &[]).await };
    let Err(ClientError::Problem(problem)) = client.deploy_workload(&of_other).await else { panic!("it is foreign") };
    let [reason] = problem.errors.as_slice() else { panic!("{:?}", problem.errors) };
    assert_eq!((problem.code.as_str(), reason.code.as_str()), ("placement_invalid", "allocation_unknown"));
    assert_eq!(reason.next.as_deref(), Some("see gpuaas allocation list"));
    let foreign = ["workload", "drain-member", "train", "agent-1", "--yes", "--project", "other"];
    assert_eq!(train.platform.gpuaas(&foreign).status.code(), Some(3), "another project sees the workload");
    assert_eq!(train.state().await, before);
    train.platform.signal_agent(4, "CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_workload_says_so_and_changes_nothing_until_it_is_started() {
    let train = Train::start(3).await;
    train.done("stop train --yes --wait");
    let shown = train.done("show train");
    assert_eq!(shown["workload"]["lifecycle"], "stopped");
    assert_eq!(shown["workload"]["actions"], serde_json::json!(["start", "decommission"]));
    assert_eq!(shown["workload"]["member_states"], serde_json::json!({ "stopped": 3 }));
    train
        .assert_refused(&[
            ("stop train", "nothing_to_do", 5, "gpuaas workload show train"),
            ("drain-member train agent-1", "state_conflict", 5, "gpuaas workload start train"),
            ("remove-member train agent-1", "state_conflict", 5, "gpuaas workload start train"),
            ("repair train --scope whole-runtime", "state_conflict", 5, "gpuaas workload start train"),
        ])
        .await;
    assert_eq!(train.refused("reconcile train")["code"], "state_conflict");
    let shown = train.platform.gpuaas(&["workload", "show", "train", "--project", PROJECT]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("NEXT     start it again: gpuaas workload start train --project research"), "{shown}");
    train.done("start train --wait");
    assert_eq!(train.done("show train")["workload"]["lifecycle"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_people_who_change_a_workload_at_once_one_is_refused() {
    let train = Train::start(3).await;
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| train.run("drain-member train agent-1 --yes --wait"));
        let two = scope.spawn(|| train.run("drain-member train agent-2 --yes --wait"));
        (one.join().expect("it ran"), two.join().expect("it ran"))
    });
    let statuses = [one.status.code(), two.status.code()];
    // The later one is refused: while the other runs by its operation, and after it because this agent is then the last ready one.
    assert!(statuses.contains(&Some(0)) && statuses.contains(&Some(5)), "{statuses:?}");
    let refused = if one.status.success() { &two } else { &one };
    let report: Value = serde_json::from_slice(&refused.stderr).expect("a report");
    assert!(report["code"] == "operation_in_progress" || report["code"] == "last_agent", "{report}");
    let drained = ["agent-1", "agent-2"].iter().filter(|name| train.member(name) == "drained").count();
    assert_eq!(drained, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_that_was_shown_is_the_only_one_that_runs_with_its_digest() {
    let train = Train::start(3).await;
    let plan = train.done("remove-member train agent-1 --plan");
    let digest = plan["digest"].as_str().expect("a digest").to_owned();
    assert!(!digest.is_empty() && plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{plan}");
    for step in plan["steps"].as_array().expect("steps") {
        assert!(step["does"].as_str().is_some_and(|does| !does.is_empty()), "{step}");
    }
    assert_eq!(train.done("remove-member train agent-1 --dry-run")["digest"], digest.as_str(), "--dry-run is --plan");
    // Another plan, and this plan for another member.
    let before = train.state().await;
    let other = train.refused(&format!("remove-member train agent-2 --yes --plan-digest {digest}"));
    assert_eq!((&other["code"], &other["exit_status"]), (&"plan_changed".into(), &5.into()), "{other}");
    assert_eq!(train.state().await, before);
    train.done("drain-member train agent-1 --yes --wait");
    train.done("uncordon-member train agent-1 --wait");
    let present = train.done("remove-member train agent-1 --plan");
    let present = present["digest"].as_str().expect("a digest");
    train.done(&format!("remove-member train agent-1 --yes --wait --plan-digest {present}"));
    assert_eq!(train.member("agent-1"), "removed");
}

/// Returns the fault of the newest operation, which needs attention.
async fn stuck(train: &Train) -> gpuaas_api_types::Fault {
    let client = train.platform.client();
    let detail = client.get_workload(Some(PROJECT.to_owned()), "train").await.expect("a workload");
    let operation = client.get_operation(&detail.operation.expect("an operation")).await.expect("an operation");
    assert_eq!(operation.operation.state, "needs_attention", "{:?}", operation.operation.fault);
    operation.operation.fault.expect("a fault")
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_not_added_on_nodes_with_leftovers_or_without_space() {
    let train = Train::start(4).await;
    let client = train.platform.client();
    let findings = async || {
        let node = client.inspect_node("demo-4").await.expect("inspected");
        node.preflight.into_iter().flat_map(|preflight| preflight.findings).collect::<Vec<_>>()
    };
    let lines = ["add-member train --agent demo-4", "replace-member train agent-1 --by demo-4 --yes"];
    let refused = |check: &str| {
        for line in lines {
            let report = train.refused(line);
            assert_eq!((&report["code"], &report["exit_status"]), (&"placement_invalid".into(), &4.into()), "{report}");
            let text = report.to_string();
            for part in ["allocation_blocked", check, "gpuaas node show demo-4", "gpuaas node inspect demo-4"] {
                assert!(text.contains(part), "{line}: {part}: {report}");
            }
        }
    };
    let before = train.state().await;
    let rancher = train.platform.node_file(4, "var/lib/rancher");
    if let Some(disk) = SmallDisk::at(&rancher) {
        disk.leave_kib(1_024);
        let found =
            findings().await.into_iter().find(|finding| finding.check == "disk_space").expect("it is too small");
        assert!(found.severity == "blocking" && found.detail.contains("MiB free of the 1024 MiB needed"), "{found:?}");
        refused("disk_space");
    }
    // Another distribution with its uninstall script.
    std::fs::create_dir_all(rancher.join("k3s/server/db")).expect("made");
    let script = train.platform.node_file(4, "usr/local/bin/k3s-uninstall.sh");
    std::fs::create_dir_all(script.parent().expect("a folder")).expect("made");
    std::fs::write(&script, "").expect("written");
    let found = findings().await.into_iter().find(|finding| finding.check == "leftover").expect("it is left");
    assert!(found.severity == "blocking" && found.detail.contains("/var/lib/rancher/k3s is left"), "{found:?}");
    assert!(found.fix.contains("(/usr/local/bin/k3s-uninstall.sh)"), "{found:?}");
    refused("leftover");
    assert_eq!(train.state().await, before);

    // Left after the last inspection: the operation finds it before it changes the node.
    std::fs::remove_dir_all(rancher.join("k3s")).expect("removed");
    std::fs::remove_file(&script).expect("removed");
    assert!(findings().await.iter().all(|finding| finding.severity != "blocking"));
    let token = rancher.join("rke2/server/token");
    std::fs::create_dir_all(token.parent().expect("a folder")).expect("made");
    std::fs::write(&token, "K10").expect("written");
    assert!(!train.run("add-member train --agent demo-4 --wait").status.success());
    let fault = stuck(&train).await;
    assert_eq!(fault.code, "rke2_preflight_blocked", "{fault:?}");
    assert!(fault.next.contains("on demo-4") && fault.next.contains("(rm -r /var/lib/rancher/rke2/server/token)"));
    assert_eq!(fault.command.as_deref(), Some("gpuaas workload resume train"));
    assert!(!train.platform.node_file(4, "usr/local/bin/rke2").exists(), "nothing was installed");
    std::fs::remove_file(&token).expect("removed");
    train.done("resume train --wait");
    assert_eq!(train.member("agent-3"), "ready");
}

/// What another person asks for while a drain is blocked is refused with the operation that runs. The drain can be cancelled and undone.
async fn refused_while_it_waits_and_cancelled(train: &Train) {
    let client = train.platform.client();
    let started = train.done("drain-member train agent-1 --drain-timeout 1h --yes");
    let id = started["operation"]["id"].as_str().expect("an id").to_owned();
    eventually("the drain does not wait for the budget", async || {
        let detail = client.get_operation(&id).await.expect("an operation");
        detail.operation.waiting.is_some_and(|of| of.evidence.is_some_and(|seen| seen.contains("budget")))
    })
    .await;
    let watch = format!("gpuaas operation watch {id}");
    train
        .assert_refused(&[
            ("stop train", "operation_in_progress", 5, watch.as_str()),
            ("decommission train", "operation_in_progress", 5, watch.as_str()),
        ])
        .await;
    for line in ["reconcile train", "uncordon-member train agent-1"] {
        assert_eq!(train.refused(line)["code"], "operation_in_progress", "{line}");
    }
    client.cancel_operation(&id).await.expect("accepted");
    eventually("the cancelled drain does not end", async || {
        client.get_operation(&id).await.is_ok_and(|of| of.operation.state == "cancelled")
    })
    .await;
    assert_ne!(train.member("agent-1"), "drained");
    train.done("uncordon-member train agent-1 --wait");
    assert_eq!(train.member("agent-1"), "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_that_a_budget_never_permits_ends_at_its_time_and_is_undone_or_continued() {
    let train = Train::start(3).await;
    let admin = Kubectl::deliver(&train.platform, "direct", "cluster-admin").await;
    for node in ["demo-1", "demo-3"] {
        admin.run(&format!("cordon {node}")).expect("cordoned");
    }
    admin.run("create deployment web --image=docker.io/stand-in/busybox --replicas=1").expect("made");
    admin.run("create poddisruptionbudget web --selector=app=web --min-available=1").expect("made");
    admin.run("wait deployment/web --for=condition=Available --timeout=60s").expect("available");
    let unschedulable = "get node demo-2 --output jsonpath={.spec.unschedulable}";
    let blocked = async |line: &str| {
        assert_eq!(train.run(line).status.code(), Some(1), "{line}");
        let fault = stuck(&train).await;
        assert_eq!(fault.code, "drain_blocked", "{fault:?}");
        assert!(fault.summary.contains("web") && fault.summary.contains("budget"), "{fault:?}");
        for part in ["PodDisruptionBudget", "uncordon-member"] {
            assert!(fault.next.contains(part), "{fault:?}");
        }
        assert_eq!(fault.command.as_deref(), Some("gpuaas workload resume train"));
        assert_ne!(train.member("agent-1"), "drained");
        assert_eq!(admin.run(unschedulable).expect("read"), "true", "no new pod goes there");
        admin.run("wait deployment/web --for=condition=Available --timeout=1s").expect("no pod was evicted");
    };
    refused_while_it_waits_and_cancelled(&train).await;
    blocked("drain-member train agent-1 --drain-timeout 10s --yes --wait").await;
    train.done("uncordon-member train agent-1 --wait");
    assert_eq!(train.member("agent-1"), "ready");
    assert_eq!(admin.run(unschedulable).expect("read"), "", "it accepts pods again");

    blocked("drain-member train agent-1 --drain-timeout 10s --yes --wait").await;
    blocked("resume train --wait").await;
    admin.run("delete poddisruptionbudget web").expect("deleted");
    admin.run("uncordon demo-3").expect("there is a node for the pod");
    train.done("resume train --wait");
    assert_eq!(train.member("agent-1"), "drained");
}
