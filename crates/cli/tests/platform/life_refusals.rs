//! Requests on a running workload that must not be carried out: each is refused with its code and what to do next, and changes nothing.

use std::process::Output;

use gpuaas_api_types::CreateProject;
use serde_json::Value;

use crate::world::{PROJECT, Platform, eventually};

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
            ("remove-member train agent-9", "member_unknown", 5, "agent-1, agent-2"),
            ("drain-member train agent-9", "member_unknown", 5, "agent-1, agent-2"),
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
    // The field that a person typed, not that of the placement.
    let report = train.refused("replace-member train agent-1 --by demo-4 --yes");
    assert_eq!(report["errors"][0]["field"], "parameters.by", "{report}");
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
