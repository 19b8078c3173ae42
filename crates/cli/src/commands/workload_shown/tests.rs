use serde_json::json;

use super::*;

fn workload(name: &str, section: &str, more: serde_json::Value) -> Workload {
    let mut value = json!({
        "id": "1", "name": name, "project": "p", "app": "rke2", "version": "v1.36.3+rke2r1", "lifecycle": "running",
        "phase": "ready", "completed": 9, "total": 9, "health": "healthy", "recovery": "none", "section": section,
        "members_ready": 3, "members_total": 3, "endpoint": "https://10.4.0.7:6443", "stand_in": false, "usable": true,
        "generation": 1, "observed_generation": 1, "created_at": "2026-01-01T00:00:00.000Z",
    });
    let (Some(all), Some(more)) = (value.as_object_mut(), more.as_object()) else { panic!("objects") };
    all.extend(more.clone());
    serde_json::from_value(value).expect("a workload")
}

#[test]
fn workloads_in_progress_come_before_active_ones_with_what_they_wait_for() {
    let deploying = json!({
        "phase": "agent_joining", "completed": 5, "health": "progressing", "lifecycle": "deploying", "stand_in": true,
        "waiting_for": "agent-2 to become ready in the cluster: kubelet not ready (for 31 s; next attempt in 4 s)",
    });
    let all = [
        workload("infer", "active", json!({})),
        workload("train", "needs_attention", deploying),
        workload("old", "history", json!({ "lifecycle": "decommissioned" })),
    ];
    insta::assert_snapshot!(sections(&all).as_str(), @r"
    IN PROGRESS
    NAME   APP              PHASE          PROGRESS  HEALTH       REASON
    train  rke2 (stand-in)  agent_joining  5/9       progressing  waiting for agent-2 to become ready in the cluster: kubelet not ready (for 31 s; next attempt in 4 s)
    ACTIVE
    NAME   APP   VERSION         MEMBERS  HEALTH   ENDPOINT
    infer  rke2  v1.36.3+rke2r1  3/3      healthy  https://10.4.0.7:6443
    HISTORY
    NAME  APP   VERSION         LIFECYCLE
    old   rke2  v1.36.3+rke2r1  decommissioned
    ");
    let named = |project: &str| workload("train", "active", json!({ "project_name": project, "endpoint": null }));
    insta::assert_snapshot!(sections(&[named("one"), named("two")]).as_str(), @r"
    ACTIVE
    NAME   PROJECT  APP   VERSION         MEMBERS  HEALTH   ENDPOINT
    train  one      rke2  v1.36.3+rke2r1  3/3      healthy
    train  two      rke2  v1.36.3+rke2r1  3/3      healthy
    ");
}

#[test]
fn residue_is_listed_for_each_node_also_if_nothing_is_left() {
    let report = |node: &str, items: &[&str], unchecked: &[&str]| NodeResidue {
        member: "agent-1".to_owned(),
        node_name: node.to_owned(),
        items: items.iter().map(ToString::to_string).collect(),
        unchecked: unchecked.iter().map(ToString::to_string).collect(),
        found: Vec::new(),
        removed: Vec::new(),
        given_up: None,
    };
    let unlisted = ["firewall rules: nft failed"];
    let paths = ["/etc/rancher", "/var/lib/rancher"].map(str::to_owned).to_vec();
    let cleaned = NodeResidue { found: paths.clone(), removed: paths, ..report("gpu-3", &[], &[]) };
    let given_up = Some("the machine burnt down (by ada)".to_owned());
    let lost = NodeResidue { given_up, ..report("gpu-4", &[], &["what is left is unknown"]) };
    let dirty = report("gpu-2", &["path /etc/cni", "link cni0"], &unlisted);
    let reports = [report("gpu-1", &[], &[]), dirty, cleaned, lost];
    insta::assert_snapshot!(residue(&reports).trim_start(), @r"
    RESIDUE
      gpu-1: nothing left
      gpu-2: path /etc/cni; link cni0; not checked: firewall rules: nft failed
      gpu-3: nothing left (2 found, 2 removed)
      gpu-4: given up: the machine burnt down (by ada); what is left is unknown
    ");
    assert_eq!(residue(&[]), "");
}

#[test]
fn drained_members_are_counted_and_explained_and_removed_ones_hidden() {
    let drained = json!({
        "members_ready": 2, "member_states": { "drained": 1, "ready": 2 }, "actions": ["uncordon_member", "remove_member"],
    });
    let train = workload("train", "active", drained);
    assert_eq!(members(&train), "2/3, 1 drained");
    let member = |name: &str, state: &str| json!({ "name": name, "node": "n", "node_name": "gpu-1", "state": state, "health": "healthy" });
    let members = [member("server-1", "ready"), member("agent-1", "removed"), member("agent-2", "drained")];
    let detail = WorkloadDetail {
        controller: None,
        controller_waiting: None,
        config: Map::new(),
        refused_actions: Vec::new(),
        workload: train,
        members: members.into_iter().map(|member| serde_json::from_value(member).expect("a member")).collect(),
        operation: None,
    };
    insta::assert_snapshot!(described(&detail, None, " --project ml").as_str(), @r"
    train   healthy · usable · 2 of 3 members ready · rke2 v1.36.3+rke2r1 · https://10.4.0.7:6443
    NEXT     agent-2 accepts no new work; remove it: gpuaas workload remove-member train agent-2 --project ml; or use it again: gpuaas workload uncordon-member train agent-2 --project ml
    ACTIONS  uncordon-member, remove-member
    NAME      NODE   STATE    HEALTH
    server-1  gpu-1  ready    healthy
    agent-2   gpu-1  drained  healthy
    ");
}

#[test]
fn degraded_workload_is_shown_with_fault_evidence_and_next_action() {
    let fault = json!({
        "code": "rke2_token_ca_mismatch", "summary": "agent gpu-09 failed to join: its token is for another cluster",
        "evidence_source": "journal rke2-agent", "evidence_at": "2026-01-01T14:11:05.000Z",
        "evidence": "token CA hash does not match the Cluster CA certificate hash",
        "next": "restarts and rejoins gpu-09 only", "command": "gpuaas workload resume train",
    });
    let member = |name: &str, node: &str, state: &str, health: &str| json!({ "name": name, "node": "n", "node_name": node, "state": state, "health": health });
    let mut failed = member("agent-2", "gpu-09", "failed", "failed");
    failed["fault"] = fault;
    let degraded = json!({ "health": "degraded", "members_ready": 2 });
    let detail = WorkloadDetail {
        workload: workload("train", "needs_attention", degraded),
        members: [member("server-1", "gpu-07", "ready", "healthy"), failed]
            .into_iter()
            .map(|member| serde_json::from_value(member).expect("a member"))
            .collect(),
        operation: None,
        controller: None,
        controller_waiting: None,
        config: Map::new(),
        refused_actions: Vec::new(),
    };
    insta::assert_snapshot!(described(&detail, None, "").as_str(), @r"
    train   degraded · usable · 2 of 3 members ready · rke2 v1.36.3+rke2r1 · https://10.4.0.7:6443
    WHY      agent gpu-09 failed to join: its token is for another cluster (rke2_token_ca_mismatch)
    EVIDENCE journal rke2-agent 2026-01-01T14:11:05.000Z: token CA hash does not match the Cluster CA certificate hash
    NEXT     restarts and rejoins gpu-09 only: gpuaas workload resume train
    NAME      NODE    STATE   HEALTH
    server-1  gpu-07  ready   healthy
    agent-2   gpu-09  failed  failed
    ");
}

#[test]
fn cancelled_workload_has_no_health_is_not_usable_and_explains_itself_once() {
    let fault = json!({
        "code": "operation_cancelled", "summary": "the deployment was cancelled; nothing was left on its nodes",
        "next": "decommission it: gpuaas workload decommission train; or resume it",
        "command": "gpuaas workload resume train",
    });
    let cancelled = json!({
        "lifecycle": "cancelled", "health": "none", "usable": false, "members_ready": 0, "members_total": 1,
        "endpoint": null, "fault": fault,
    });
    let member = json!({ "name": "server-1", "node": "n", "node_name": "gpu-07", "state": "failed", "health": "failed", "fault": fault });
    let detail = WorkloadDetail {
        workload: workload("train", "needs_attention", cancelled),
        members: vec![serde_json::from_value(member).expect("a member")],
        operation: None,
        controller: None,
        controller_waiting: None,
        config: Map::new(),
        refused_actions: Vec::new(),
    };
    insta::assert_snapshot!(described(&detail, None, "").as_str(), @r"
    train   cancelled · 0 of 1 members ready · rke2 v1.36.3+rke2r1
    WHY      the deployment was cancelled; nothing was left on its nodes (operation_cancelled)
    NEXT     decommission it: gpuaas workload decommission train; or resume it: gpuaas workload resume train
    NAME      NODE    STATE   HEALTH
    server-1  gpu-07  failed  failed
    ");
    let next = "decommission train --project ml; or resume it: gpuaas workload resume train --project ml\n";
    let shown = described(&detail, None, " --project ml");
    assert!(shown.as_str().contains(next), "{}", shown.as_str());
}

#[test]
fn settings_are_shown_one_a_line() {
    let config = json!({
        "cluster_cidr": "10.52.0.0/16", "node_labels": { "rack": "b12", "tier": "gold" },
        "tls_san": ["k8s.example", "10.0.0.7"],
    });
    let detail = WorkloadDetail {
        workload: workload("train", "active", json!({ "endpoint": null })),
        members: Vec::new(),
        operation: None,
        controller: None,
        controller_waiting: None,
        config: config.as_object().cloned().expect("an object"),
        refused_actions: Vec::new(),
    };
    let shown = described(&detail, None, "");
    let expected = "\nSETTINGS\n  cluster_cidr: 10.52.0.0/16\n  node_labels: rack=b12, tier=gold\n  tls_san: k8s.example, 10.0.0.7\n";
    assert!(shown.as_str().contains(expected), "{}", shown.as_str());
    let without = WorkloadDetail { config: Map::new(), ..detail };
    assert!(!described(&without, None, "").as_str().contains("SETTINGS"));
}

#[test]
fn newest_operation_is_shown_with_its_parameters() {
    let detail = WorkloadDetail {
        workload: workload("train", "active", json!({ "endpoint": null })),
        members: Vec::new(),
        operation: None,
        controller: None,
        controller_waiting: None,
        config: Map::new(),
        refused_actions: Vec::new(),
    };
    let operation = json!({
        "operation": {
            "id": "1", "workload": "2", "kind": "upgrade",
            "parameters": { "force": true, "give_up": ["agent-1", "agent-2"], "reason": "ticket 5", "version": "v2" },
            "state": "needs_attention", "requested_by": "ada", "created_at": "2026-01-01T00:00:00.000Z",
        },
        "steps": [],
    });
    let operation: OperationDetail = serde_json::from_value(operation).expect("an operation");
    let shown = described(&detail, Some(&operation), "");
    let shown = shown.as_str();
    let parameters = r#"force=true give_up=agent-1,agent-2 reason="ticket 5" version=v2"#;
    assert!(shown.contains(&format!("\nOPERATION upgrade {parameters} · needs attention\n")), "{shown}");
}

#[test]
fn requested_cancellation_is_shown_until_the_operation_ends() {
    let detail = WorkloadDetail {
        workload: workload("train", "needs_attention", json!({ "endpoint": null })),
        members: Vec::new(),
        operation: None,
        controller: None,
        controller_waiting: None,
        config: Map::new(),
        refused_actions: Vec::new(),
    };
    let shown = |ended_at: Option<&str>| {
        let operation = json!({
            "operation": {
                "id": "1", "workload": "2", "kind": "deploy", "state": "running", "cancel_requested": true,
                "requested_by": "ada", "created_at": "2026-01-01T00:00:00.000Z", "ended_at": ended_at,
            },
            "steps": [],
        });
        let operation: OperationDetail = serde_json::from_value(operation).expect("an operation");
        let of_operation = crate::commands::operation_shown::described(&operation, "", false);
        (described(&detail, Some(&operation), "").as_str().to_owned(), of_operation.as_str().to_owned())
    };
    let (of_workload, of_operation) = shown(None);
    assert!(of_workload.contains("\nOPERATION deploy · running (cancellation requested)\n"), "{of_workload}");
    assert!(of_operation.contains(" · running (cancellation requested) · "), "{of_operation}");
    let (of_workload, of_operation) = shown(Some("2026-01-01T00:00:01.000Z"));
    assert!(!of_workload.contains("cancellation") && !of_operation.contains("cancellation"), "{of_operation}");
}

#[test]
fn report_of_a_controller_is_shown_with_its_author_and_generation() {
    let report = |current: bool| {
        json!({
            "by": "service-account/watcher", "generation": 3, "current": current, "phase": "ready",
            "progress": { "completed": 3, "total": 5 }, "since": "2026-01-01T00:00:00.000Z",
            "reported_at": "2026-01-01T00:00:00.000Z",
        })
    };
    let shown = |current: bool| {
        let detail = WorkloadDetail {
            workload: workload("train", "active", json!({ "endpoint": null })),
            members: Vec::new(),
            operation: None,
            controller: Some(serde_json::from_value(report(current)).expect("a report")),
            controller_waiting: None,
            config: Map::new(),
            refused_actions: Vec::new(),
        };
        described(&detail, None, "").as_str().to_owned()
    };
    let text = shown(true);
    assert!(text.contains("\nREPORTED by service-account/watcher since 2026-01-01T00:00:00.000Z · last "), "{text}");
    assert!(text.contains(" ago · generation 3 · phase ready · 3/5\n"), "{text}");
    assert!(shown(false).contains("generation 3 (earlier than the present one, so nothing of it counts)"));
}

#[test]
fn drift_is_shown_with_the_time_of_the_next_reconciliation() {
    let drift = json!({
        "differences": [{
            "member": "agent-1", "field": "config", "desired": "as the platform wrote it",
            "observed": "/etc/rancher/rke2/config.yaml was changed", "since": "2026-01-01T00:00:00.000Z",
            "next": "reconcile", "command": "gpuaas workload reconcile train",
        }],
        "reconcile_at": "2026-01-01T00:00:32.000Z", "attempts": ["2026-01-01T00:00:02.000Z"],
    });
    let drift: Drift = serde_json::from_value(drift).expect("a drift");
    insta::assert_snapshot!(drifted(&drift, "train").trim_start(), @r"
    DRIFT    agent-1: config: /etc/rancher/rke2/config.yaml was changed (since 2026-01-01T00:00:00.000Z)
             the platform reconciles train at 2026-01-01T00:00:32.000Z (attempts within the last hour: 1)
    ");
    let given_up = Drift { reconcile_at: None, ..drift };
    assert!(!drifted(&given_up, "train").contains("reconciles"), "no time is shown when nothing is due");
}

#[test]
fn roles_of_access_are_shown_with_what_they_need_and_a_command_that_tries_them() {
    let answer = json!({
        "reachability": "node-network", "notes": [], "grants": [],
        "kinds": [{
            "name": "direct", "default": true, "ttl_seconds": 86_400, "ttl_seconds_max": 86_400, "note": "a token",
            "roles": ["cluster-view"],
            "offered_roles": [{
                "name": "cluster-view", "permission": "access.view", "check": "kubectl --kubeconfig FILE get pods",
                "check_merged": "kubectl get pods",
            }],
        }],
    });
    let shown = access(&serde_json::from_value(answer).expect("an answer"));
    let row = shown.as_str().lines().next_back().unwrap_or_default();
    for part in ["direct", "cluster-view", "access.view", "kubectl --kubeconfig FILE get pods"] {
        assert!(row.contains(part), "{row}");
    }
}
